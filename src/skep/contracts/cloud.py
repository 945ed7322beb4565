"""A whole cloud below its HTTP services, in one event loop, over real SQLite files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa

from skep.compute.drivers.base import Guest
from skep.compute.drivers.fake import FakeDriver
from skep.config.compute import ComputeSettings, FakeDriverSettings, FakeFailure
from skep.config.sections import ConductorSettings, Config
from skep.contracts.databases import lay_out, locations_of, open_all
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import build_requests, cells, ends, operator_state, quotas
from skep.database.api import instance_mappings as mappings
from skep.database.api.network_tables import ports
from skep.database.api.tables import build_requests as build_request_rows
from skep.database.api.tables import instance_mappings, quota_charges, request_specs
from skep.database.cell import attempts, instances, moves
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances as instance_rows
from skep.domain.builds import AttemptRecord
from skep.domain.claims import Claim
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId, new_request_id, new_uuid
from skep.domain.instances import Instance
from skep.domain.nested.wanted import DeviceRequest
from skep.domain.quotas import COUNTED, UNLIMITED, charge_of
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import VCPU
from skep.domain.states import SETTLED
from skep.messages.to_scheduler import PublishOperatorState
from skep.messages.to_super_conductor import DeleteInstances, ScheduleAndBuildInstances
from skep.processes.control_plane import ControlPlane
from skep.processes.directory import StateDirectory
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notification, Notifier
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, Transport
from skep.transport.host_states import host_states

PROJECT = ProjectId("11111111111111111111111111111111")
USER = UserId("22222222222222222222222222222222")
SMALL = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
NO_LIMITS = dict.fromkeys(COUNTED, UNLIMITED)


def quick_config(
    *,
    failures: Sequence[FakeFailure] = (),
    conductor: ConductorSettings | None = None,
    **fake: object,
) -> Config:
    """Return a configuration whose fake hosts take no time, with quick resends."""
    driver = msgspec.structs.replace(
        FakeDriverSettings(spawn_delay=0, destroy_delay=0, power_delay=0, failures=tuple(failures)),
        **fake,
    )
    return Config(
        compute=ComputeSettings(fake=driver),
        conductor=conductor or ConductorSettings(lease_seconds=2.0, resend_seconds=0.2),
    )


class Cloud:
    """The control plane with what tests ask of it. `restart` is a new life over the same files."""

    def __init__(
        self,
        root: Path,
        config: Config,
        *,
        cells: int,
        hosts: int,
        clock: Clock | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.directory = StateDirectory(root)
        self.config = config
        self.names = [f"cell{number}" for number in range(1, cells + 1)]
        self.hosts = hosts
        self.clock = clock or Clock()
        self.transport = transport
        self.notifications: list[Notification] = []
        self.left: dict[str, int] = {}
        self.plane: ControlPlane

    async def start(self) -> None:
        """Start everything and wait until all hosts may get servers."""
        self.directory.open()
        locations = locations_of(self.config, self.directory, self.names)
        lay_out(locations)
        databases = await open_all(locations)
        self.plane = ControlPlane(
            self.config,
            self.directory,
            databases,
            clock=self.clock,
            metrics=Metrics(),
            notifier=Notifier(self.clock, sinks=(self.notifications.append,)),
            hosts=self.hosts,
            transport=self.transport,
        )
        await self.plane.start()
        await eventually(self._ready, "all hosts are up")

    async def stop(self) -> None:
        """Stop everything in good order."""
        await self.plane.stop()
        await self.plane.databases.close()
        self.directory.close()

    async def restart(self) -> None:
        """Stop and start again."""
        await self.stop()
        await self.start()

    async def _ready(self) -> bool:
        return await hosts_up(self.plane)

    async def create(
        self,
        count: int = 1,
        *,
        flavor: Flavor = SMALL,
        min_count: int = 1,
        name: str = "server",
        group: GroupRule | None = None,
        zone: str | None = None,
        same_host: tuple[str, ...] = (),
        devices: tuple[DeviceRequest, ...] = (),
    ) -> list[InstanceUuid]:
        """Store a request as the API does and wake the super conductor."""
        now = self.clock.now()
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER, roles=("member",))
        spec = RequestSpec(
            project_id=PROJECT,
            user_id=USER,
            flavor=flavor,
            group=group,
            availability_zone=zone,
            same_host=same_host,
            devices=devices,
        )
        members = tuple(_instance(flavor, name, context.request_id, now, index) for index in range(count))
        new = build_requests.NewRequest(context=context, instances=members, spec=spec, min_count=min_count, now=now)

        def unit(connection: sa.Connection) -> None:
            charges = {one.uuid: charge_of(flavor) for one in members}
            exceeded = quotas.charge(connection, PROJECT, USER, charges, NO_LIMITS)
            assert exceeded is None
            build_requests.store(connection, new)

        await self.plane.databases.api.write(unit, intake=True)
        await self.plane.transport.cast(SUPER_CONDUCTOR, ScheduleAndBuildInstances(request_id=context.request_id))
        return [one.uuid for one in members]

    async def delete(self, uuid: InstanceUuid) -> None:
        """Ask for a server's end as the API does."""
        now = self.clock.now()
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)

        def unit(connection: sa.Connection) -> None:
            if not ends.end_unplaced(connection, uuid, now):
                mappings.intend_delete(connection, uuid, context, now)

        await self.plane.databases.api.write(unit, intake=True)
        await self.plane.transport.cast(SUPER_CONDUCTOR, DeleteInstances())

    async def find(self, uuid: InstanceUuid) -> Instance | None:
        """Return a server as a user sees it: in its cell, or still a build request; None when it is gone."""
        mapping = await self.plane.databases.api.read(partial(mappings.get, instance=uuid))
        if mapping is None or mapping.deleted_at is not None:
            return None
        if mapping.cell is None:
            request = await self.plane.databases.api.read(partial(build_requests.get, instance=uuid))
            return request.instance if request is not None else None
        database = self.plane.databases.cells[self.plane.cells[mapping.cell].name]
        return await database.read(partial(instances.get, uuid=uuid))

    async def cell_of(self, uuid: InstanceUuid) -> str | None:
        """Return the name of a server's cell."""
        mapping = await self.plane.databases.api.read(partial(mappings.get, instance=uuid))
        return None if mapping is None or mapping.cell is None else self.plane.cells[mapping.cell].name

    async def settled(self, uuids: Sequence[InstanceUuid], *, seconds: float = PATIENCE) -> list[Instance]:
        """Wait until all servers are ACTIVE, SHUTOFF or ERROR and return them."""

        async def probe() -> list[Instance]:
            found = [await self.find(uuid) for uuid in uuids]
            done = [one for one in found if one is not None and one.state in SETTLED and one.task is None]
            return done if len(done) == len(uuids) else []

        return await eventually(probe, f"{len(uuids)} servers are settled", seconds=seconds)

    async def gone(self, uuids: Sequence[InstanceUuid]) -> None:
        """Wait until none of the servers is there any more."""

        async def probe() -> bool:
            return not any([await self.find(uuid) for uuid in uuids])

        await eventually(probe, "servers are gone")

    async def attempts(self, uuid: InstanceUuid) -> list[AttemptRecord]:
        """Return the attempts of a server in its cell."""
        name = await self.cell_of(uuid)
        assert name is not None
        return await self.plane.databases.cells[name].read(partial(attempts.history, instance=uuid))

    async def only_cell(self, name: str | None) -> None:
        """Let only this cell get new servers; None lets all."""

        def unit(connection: sa.Connection) -> PublishOperatorState:
            for cell in self.plane.cells.values():
                cells.set_disabled(connection, cell.uuid, name not in (None, cell.name))
            return operator_state.read(connection)

        wanted = await self.plane.databases.api.write(unit)
        await self.plane.transport.call(SCHEDULER, wanted)

    async def tried(self, uuid: InstanceUuid) -> None:
        """Wait until a server was tried on a host."""

        async def probe() -> bool:
            return await self.cell_of(uuid) is not None and bool(await self.attempts(uuid))

        await eventually(probe, "the server was tried")

    async def cells_before(self, uuid: InstanceUuid) -> list[str]:
        """Return the names of the cells that a server was in before."""
        name = await self.cell_of(uuid)
        assert name is not None
        left = await self.plane.databases.cells[name].read(partial(moves.cells_left, uuid=uuid))
        return [self.plane.cells[cell].name for cell in left]

    @property
    def fakes(self) -> dict[str, FakeDriver]:
        """The drivers of all fake hosts, by the host's name."""
        return {host: driver for host, driver in self.plane.drivers.items() if isinstance(driver, FakeDriver)}

    async def guests(self) -> list[Guest]:
        """Return all guests of all fake hosts, as their drivers know them."""
        found: list[Guest] = []
        for driver in self.plane.drivers.values():
            found.extend(await driver.guests())
        return found

    async def claims(self) -> list[Claim]:
        """Return all claims that the scheduler holds."""
        return [claim for host in await host_states(self.plane.transport) for claim in host.claims]

    async def used_vcpus(self) -> int:
        """Return how many virtual CPUs the hosts count as used, as the scheduler knows them."""
        return sum(host.usage.used.get(VCPU, 0) for host in await host_states(self.plane.transport))

    async def settled_again(self, *, group: GroupRule) -> list[Instance]:
        """Create one more server of a group and wait for it."""
        return await self.settled(await self.create(group=group))

    async def stop_agent(self, host: str) -> None:
        """Stop the agent of one host; its guests stay."""
        await self.plane.agents.pop(host).stop()
        self.plane.drivers.pop(host).close()

    async def nothing_left(self) -> None:
        """Wait until no guest, claim, open attempt, port, quota charge or build request is left of anything."""

        async def probe() -> bool:
            rows = await self.plane.databases.api.read(_rows_above)
            for name, database in self.plane.databases.cells.items():
                rows |= {f"{name} {key}": value for key, value in (await database.read(_rows_in_cell)).items()}
            rows["claims"] = len(await self.claims())
            rows["guests"] = len(await self.guests())
            left = {key: value for key, value in rows.items() if value}
            self.left = left
            return not left

        try:
            await eventually(probe, "nothing is left")
        except AssertionError as error:
            raise AssertionError(f"left: {self.left}") from error

    async def no_claims(self) -> None:
        """Wait until the hosts' reports have settled all claims."""

        async def probe() -> bool:
            return not await self.claims()

        await eventually(probe, "no claims are left")


def _rows_above(connection: sa.Connection) -> dict[str, int]:
    unfinished = instance_mappings.c.deleted_at.is_(None)
    return {
        "build requests": _count(connection, build_request_rows),
        "quota charges": _count(connection, quota_charges),
        "quota used": sum(quotas.used(connection, PROJECT).values()),
        "mappings": _count(connection, instance_mappings, unfinished),
        "specs": _count(connection, request_specs),
        "ports": _count(connection, ports, ports.c.server.is_not(None)),
    }


def _rows_in_cell(connection: sa.Connection) -> dict[str, int]:
    return {
        "instances": _count(connection, instance_rows, instance_rows.c.deleted_at.is_(None)),
        "unforgotten": _count(
            connection, instance_rows, instance_rows.c.deleted_at.is_not(None) & ~instance_rows.c.forgotten
        ),
        "open attempts": _count(connection, attempt_rows, attempt_rows.c.open),
    }


def _count(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()


async def hosts_up(plane: ControlPlane) -> bool:
    """Tell whether all hosts whose agents run here may get servers, but for those that an admin forced down.

    Once all have reported, they need not wait for the next beat.
    """
    known = {host.node: host for host in await host_states(plane.transport)}
    nodes = {agent.node for agent in plane.agents.values()}
    if not nodes <= known.keys():
        return False
    are_up = all(known[node].up or known[node].forced_down for node in nodes)
    if not are_up:
        plane.beat_now()
    return are_up


@asynccontextmanager
async def running_cloud(
    root: Path,
    config: Config | None = None,
    *,
    cells: int = 2,
    hosts: int = 3,
    clock: Clock | None = None,
    transport: Transport | None = None,
) -> AsyncIterator[Cloud]:
    """Run a cloud for the length of a block."""
    cloud = Cloud(root, config or quick_config(), cells=cells, hosts=hosts, clock=clock, transport=transport)
    await cloud.start()
    try:
        yield cloud
    finally:
        await cloud.stop()


def _instance(flavor: Flavor, name: str, request_id: RequestId, now: int, index: int) -> Instance:
    return Instance(
        uuid=InstanceUuid(new_uuid()),
        project_id=PROJECT,
        user_id=USER,
        name=f"{name}-{index + 1}",
        hostname=f"{name}-{index + 1}",
        flavor=flavor,
        created_at=now,
        request_id=request_id,
        launch_index=index,
    )
