"""The super conductor as a running service: its lease, its loops, the hints that nudge them."""

from __future__ import annotations

import asyncio
import dataclasses

from skep.config.events import EventsSettings
from skep.config.sections import RetentionSettings
from skep.database.api import recovery as api_recovery
from skep.database.api.tables import leases
from skep.database.api.time_tables import time
from skep.database.clocks import DatabaseClock
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden
from skep.domain.ids import CellUuid
from skep.domain.timelines import API
from skep.messages.to_super_conductor import (
    CellChanged,
    DeleteInstances,
    IssueTicket,
    LookAtHostNetworks,
    OpenContents,
    OperatorStateChanged,
    ReadConnections,
    ReadNetworkChanges,
    ScheduleAndBuildInstances,
)
from skep.reconciler.beginnings import until_done
from skep.reconciler.lease import Lease, Time
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.super_conductor.auditor import Auditor
from skep.super_conductor.between_cells import BetweenCells
from skep.super_conductor.builds import Builds
from skep.super_conductor.charges import Charges
from skep.super_conductor.connections import Connections
from skep.super_conductor.contents import Contents
from skep.super_conductor.deletes import Deletes
from skep.super_conductor.events import Events
from skep.super_conductor.host_networks import NetworksOnHosts
from skep.super_conductor.hosts import Hosts
from skep.super_conductor.interfaces import Interfaces
from skep.super_conductor.moves import Moves
from skep.super_conductor.parts import Parts
from skep.super_conductor.reconcile import Leftovers, Retention
from skep.super_conductor.recovery import Recovery
from skep.super_conductor.reimages import Reimages
from skep.super_conductor.removals import Removals
from skep.super_conductor.sweeper import Sweeper
from skep.super_conductor.tickets import Tickets
from skep.super_conductor.timelines import Timelines
from skep.super_conductor.volumes import VolumesOfServers
from skep.super_conductor.webhooks import Webhook
from skep.transport.base import SUPER_CONDUCTOR, Handlers, Subscription


class SuperConductor:
    """Drives builds and deletes above the cells. Any number may run; rows and leases keep them apart."""

    def __init__(self, parts: Parts, retention: RetentionSettings, events: EventsSettings) -> None:
        self.clock = DatabaseClock(parts.clock)
        parts = dataclasses.replace(parts, clock=self.clock, time=Time(time, API, api_recovery.begin_if_lost))
        self._parts = parts
        resend = parts.settings.resend_seconds
        deletes, hosts, of_servers, volumes = Deletes(parts), Hosts(parts), Interfaces(parts), VolumesOfServers(parts)
        self._builds = Loop("builds", Builds(parts).run, every=min(0.5, resend), apart=GATHER_SECONDS)
        self._deletes = Loop("deletes", deletes.begin, every=resend, apart=GATHER_SECONDS)
        self._forget = Loop("forget", deletes.forget, every=resend, apart=GATHER_SECONDS)
        deletes.nudge_forget = self._forget.nudge
        self._charges = Loop("charges", Charges(parts).run, every=resend, apart=GATHER_SECONDS)
        self._agents = Loop("agents", hosts.map_agents, every=resend)
        self._operator = Loop("operator-state", hosts.publish, every=5.0)
        self._removals = Loop("removals", Removals(parts).run, every=resend)
        self._epoch = Loop("epoch", hosts.follow_epoch, every=1.0)
        self._moves = Loop("moves", Moves(parts).run, every=resend)
        self._between_cells = Loop("between cells", BetweenCells(parts).run, every=resend)
        self._interfaces = Loop("interfaces", of_servers.tell, every=min(1.0, resend))
        self._looks_at_ports = Loop("looks at ports", of_servers.look, every=min(1.0, resend))
        self._bindings = Loop("bindings", of_servers.bind, every=resend)
        self._connections = Loop("connections of volumes", volumes.follow, every=min(1.0, resend))
        self._reimages = Loop(
            "volumes filled anew", Reimages(parts, volumes).run, every=min(1.0, resend), apart=GATHER_SECONDS
        )
        self._looks_at_volumes = Loop("looks at volumes", volumes.look, every=min(1.0, resend))
        self._leftovers = Loop("leftovers", Leftovers(parts).run, every=resend)
        self._sweeper = Loop("sweeper", Sweeper(parts).run, every=parts.settings.sweep_seconds)
        self._auditor = Loop("audit", Auditor(parts).run, every=parts.settings.audit_seconds)
        self._retention = Loop("retention", Retention(parts, retention).run, every=60.0)
        self._events = Loop("events", Events(parts, events).run, every=min(1.0, resend))
        self._webhooks = [Webhook(parts, one) for one in events.webhooks]
        self._telling = [Loop(f"webhook {one.name}", one.run, every=min(1.0, resend)) for one in self._webhooks]
        self._looks = Timelines(parts)
        self._timelines = Loop("timelines", self._looks.run, every=2.0)
        self._recovery = Loop("recovery", Recovery(parts).run, every=resend)
        self._lease = Lease(
            parts.api,
            leases,
            parts.owner,
            "super_conductor",
            self.clock,
            seconds=parts.settings.lease_seconds,
            host=parts.runs_on,
            on_clock=parts.on_clock,
            time=parts.time,
        )
        self._subscriptions: list[Subscription] = []
        self._placing: asyncio.Task[None] | None = None

    @property
    def _loops(self) -> tuple[Loop, ...]:
        """Return the loops that place nothing."""
        return (
            self._deletes,
            self._forget,
            self._charges,
            self._agents,
            self._operator,
            self._removals,
            self._epoch,
            self._moves,
            self._between_cells,
            self._interfaces,
            self._bindings,
            self._looks_at_ports,
            self._connections,
            self._reimages,
            self._looks_at_volumes,
            self._leftovers,
            self._sweeper,
            self._auditor,
            self._retention,
            self._events,
            *self._telling,
            self._timelines,
            self._recovery,
        )

    async def start(self) -> None:
        """Take the lease, listen for hints, look at the whole once."""
        await self._lease.start()
        # Before anything is done: a database that went back while nobody ran is known by what the others remember.
        await self._looks.run()
        transport, networks = self._parts.transport, NetworksOnHosts(self._parts)
        hints: Handlers = {
            ScheduleAndBuildInstances: self._on_build,
            DeleteInstances: self._on_delete,
            OperatorStateChanged: self._on_operator_state,
            CellChanged: self._on_cell_changed,
        }
        self._subscriptions = [
            await transport.serve(SUPER_CONDUCTOR, hints),
            await transport.serve_cells(
                SUPER_CONDUCTOR,
                {
                    CellChanged: self._on_told,
                    OpenContents: Contents(self._parts).open,
                    IssueTicket: Tickets(self._parts).issue,
                    LookAtHostNetworks: networks.look,
                    ReadNetworkChanges: networks.changes,
                    ReadConnections: Connections(self._parts).read,
                },
            ),
        ]
        for loop in self._loops:
            loop.start()
        self._placing = asyncio.create_task(until_done("placing", self._place), name="placing")

    async def _place(self) -> None:
        """Begin to place servers. Those from before the start may have a guest that only its host remembers."""
        if await self._parts.api.read(api_recovery.any_unplaced):
            await self._looks.judged()
        self._builds.start()

    async def stop(self) -> None:
        """Finish the passes under way, stop, and let others take over at once."""
        if self._placing is not None:
            self._placing.cancel()
            await asyncio.wait({self._placing})
        for subscription in self._subscriptions:
            await subscription.close()
        for webhook in self._webhooks:
            webhook.hurry()
        for loop in (self._builds, *self._loops):
            await loop.stop()
        for webhook in self._webhooks:
            await webhook.close()
        await self._lease.stop()

    async def _on_build(self, _message: ScheduleAndBuildInstances, _context: RequestContext | None) -> None:
        self._builds.nudge()

    async def _on_delete(self, _message: DeleteInstances, _context: RequestContext | None) -> None:
        self._deletes.nudge()

    async def _on_operator_state(self, _message: OperatorStateChanged, _context: RequestContext | None) -> None:
        self._operator.nudge()
        self._removals.nudge()

    async def _on_told(self, cell: CellUuid, message: CellChanged, context: RequestContext | None) -> None:
        if message.cell != cell:
            raise Forbidden(f"cell: cell {cell} may not name cell {message.cell}.")
        await self._on_cell_changed(message, context)

    async def _on_cell_changed(self, _message: CellChanged, _context: RequestContext | None) -> None:
        self._forget.nudge()
        self._charges.nudge()
        self._agents.nudge()
        self._moves.nudge()
        self._between_cells.nudge()
        self._reimages.nudge()
        self._bindings.nudge()
        self._connections.nudge()
        self._recovery.nudge()
