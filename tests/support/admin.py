"""The admin API over fresh databases: two cells, a scheduler that answers what is set, tokens that are names.

Each answer is judged by the document of the API.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import sqlalchemy as sa

from skep.admin.app import AdminApi
from skep.admin.event_streams import EventStreams
from skep.admin.openapi import described
from skep.admin.services import AdminServices
from skep.config.events import EventsSettings
from skep.contracts.databases import new_database
from skep.database.api import build_requests, cells, flavors, host_mappings, instance_mappings, quotas
from skep.database.api.destinations import StagedMember
from skep.database.cell import agents, attempts
from skep.database.cell.attempts import NewAttempt
from skep.database.cell.tables import instances
from skep.database.stored import dump
from skep.domain.actions import Over
from skep.domain.builds import Decision, Explanation, NearMiss, NotReady, NoValidHost, Placed, StageCount
from skep.domain.cells import Cell, HostMapping
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.hosts import AgentIdentity, HostState, HostUsage
from skep.domain.ids import (
    CELL0,
    CellUuid,
    GroupUuid,
    Incarnation,
    InstanceUuid,
    NodeUuid,
    ProjectId,
    RequestId,
    UserId,
    new_uuid,
)
from skep.domain.instances import Instance, State
from skep.domain.nested.aliases import DeviceAlias
from skep.domain.nested.wanted import DeviceMatch
from skep.domain.quotas import charge_of
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.messages.base import Done
from skep.messages.to_scheduler import (
    AssertClaims,
    AssertReply,
    GetHostStates,
    GetHostStatesReply,
    Holding,
    ListClaims,
    ListClaimsReply,
    ListNamespaces,
    ListNamespacesReply,
    PublishOperatorState,
    ReleaseClaims,
    ReleaseReply,
    ReleaseSlots,
    SelectDestinations,
    SelectReply,
)
from skep.messages.to_super_conductor import OperatorStateChanged
from skep.standalone.networks.of_servers import EmbeddedNetworks
from skep.standalone.networks.settings import NetworksSettings
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, Subscription
from skep.transport.memory import MemoryTransport
from tests.support.admin_tokens import PROJECT, Tokens
from tests.support.documented import Documented
from tests.support.images import HeldImages
from tests.support.memory_volumes import MemoryVolumes

CELL1 = CellUuid("11111111-1111-4111-8111-111111111111")
CELL2 = CellUuid("22222222-2222-4222-8222-222222222222")
FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
UNLIMITED = {"instances": -1, "cores": -1, "ram": -1}
NOW = 1_800_000_000_000_000

EXPLANATION = Explanation(
    considered=6,
    stages=(StageCount("availability zone nova", 4), StageCount("capacity", 0)),
    nearest=(NearMiss(node=NodeUuid("n1"), host="h1", stage="capacity", lacks={"MEMORY_MB": 1024}),),
    rejected={"h1": "capacity", "h2": "availability zone nova"},
)


@dataclass
class Scheduler:
    """Holds what it is given; a cell that is not in `asserted` is not ready."""

    states: list[HostState] = field(default_factory=list)
    slots: list[Holding] = field(default_factory=list)
    asserted: set[CellUuid] = field(default_factory=lambda: {CELL1, CELL2})
    published: list[PublishOperatorState] = field(default_factory=list)
    nudged: list[OperatorStateChanged] = field(default_factory=list)
    asked: list[SelectDestinations] = field(default_factory=list)
    fits: bool = True
    subscription: Subscription | None = None

    async def serve(self, transport: MemoryTransport) -> None:
        self.subscription = await transport.serve(
            SCHEDULER,
            {
                GetHostStates: self._states,
                PublishOperatorState: self._publish,
                SelectDestinations: self._select,
                ListNamespaces: self._namespaces,
                ListClaims: self._claims,
                ReleaseClaims: self._release_claims,
                ReleaseSlots: self._release_slots,
                AssertClaims: self._assert,
            },
        )
        await transport.serve(SUPER_CONDUCTOR, {OperatorStateChanged: self._nudge})

    async def _states(self, _message: GetHostStates, _context: RequestContext | None) -> GetHostStatesReply:
        silent = (state.node for state in self.states if state.silent)
        return GetHostStatesReply(hosts=tuple(self.states), epoch="e1", silent=tuple(silent))

    async def _publish(self, message: PublishOperatorState, _context: RequestContext | None) -> Done:
        self.published.append(message)
        return Done()

    async def _nudge(self, message: OperatorStateChanged, _context: RequestContext | None) -> None:
        self.nudged.append(message)

    async def _namespaces(self, _message: ListNamespaces, _context: RequestContext | None) -> ListNamespacesReply:
        return ListNamespacesReply(namespaces={"compute": len(self.states)})

    async def _claims(self, _message: ListClaims, _context: RequestContext | None) -> ListClaimsReply:
        held = tuple(
            Holding(
                key=ClaimKey(claim.instance, claim.attempt, claim.node, claim.group),
                host=state.usage.host,
                cell=state.cell,
                role=claim.role,
                resources=claim.resources,
            )
            for state in self.states
            for claim in state.claims
        )
        return ListClaimsReply(claims=held, slots=tuple(self.slots), epoch="e1", asserted=tuple(self.asserted))

    async def _release_claims(self, message: ReleaseClaims, _context: RequestContext | None) -> ReleaseReply:
        names = {(key.instance, key.attempt, key.node) for key in message.claims}
        released = 0
        for index, state in enumerate(self.states):
            left = tuple(one for one in state.claims if (one.instance, one.attempt, one.node) not in names)
            released += len(state.claims) - len(left)
            self.states[index] = msgspec.structs.replace(state, claims=left)
        return ReleaseReply(released=released)

    async def _release_slots(self, message: ReleaseSlots, _context: RequestContext | None) -> ReleaseReply:
        left = [slot for slot in self.slots if slot.key not in message.slots]
        released, self.slots = len(self.slots) - len(left), left
        return ReleaseReply(released=released)

    async def _assert(self, message: AssertClaims, _context: RequestContext | None) -> AssertReply:
        self.slots += [Holding(key=slot.key, cell=message.cell) for slot in message.slots]
        return AssertReply(epoch="e1")

    async def _select(self, message: SelectDestinations, _context: RequestContext | None) -> SelectReply:
        assert message.dry_run
        self.asked.append(message)
        decision: Decision
        if message.cell is not None and message.cell not in self.asserted:
            decision = NotReady(reason="the cell has not asserted its claims")
        elif self.fits:
            decision = Placed(node=NodeUuid("n1"), host="h1", cell=CELL1, epoch="e1")
        else:
            decision = NoValidHost(explanation=EXPLANATION)
        return SelectReply(decisions=(decision,) * len(message.members), epoch="e1")


@dataclass
class Admin:
    """The application and what is behind it."""

    services: AdminServices
    scheduler: Scheduler
    client: httpx.AsyncClient
    ended: list[Over]
    """Actions that ended with repairs."""
    volumes: MemoryVolumes

    async def ask(self, method: str, path: str, *, token: str | None = "admin", **more: Any) -> httpx.Response:
        headers = {} if token is None else {"X-Auth-Token": token}
        return await self.client.request(method, path, headers=headers, **more)

    async def good(self, method: str, path: str, **more: Any) -> Any:
        response = await self.ask(method, f"/admin/v1{path}", **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def write(self, *statements: sa.Executable) -> None:
        """Execute statements in the API database."""
        await self.services.database.write(partial(_execute, statements=statements))

    async def write_cell(self, *statements: sa.Executable, cell: CellUuid = CELL1) -> None:
        await self.services.cells[cell].write(partial(_execute, statements=statements))

    async def audit(self) -> dict[str, list[Any]]:
        """Return the evidence of differences by kind."""
        found: dict[str, list[Any]] = {}
        for difference in (await self.good("GET", "/audit"))["audit"]["differences"]:
            found.setdefault(difference["kind"], []).append((difference["subject"], difference["evidence"]))
        return found

    async def server(
        self,
        cell: CellUuid | None,
        *,
        state: State = State.ACTIVE,
        attempt: int = 1,
        group: GroupRule | None = None,
        flavor: Flavor = FLAVOR,
        project: ProjectId = PROJECT,
        name: str = "one",
    ) -> Instance:
        """Make a server with everything that belongs to it: in a cell, or waiting for one."""
        request_id = RequestId(f"req-{new_uuid()}")
        nowhere, number = cell is None or cell == CELL0, 2 if cell == CELL2 else 1
        instance = Instance(
            uuid=InstanceUuid(new_uuid()),
            project_id=project,
            user_id=UserId("owner"),
            name=name,
            hostname=name,
            flavor=flavor,
            created_at=NOW,
            request_id=request_id,
            state=state,
            attempt=attempt,
            host=None if nowhere else f"h{number}",
            node=None if nowhere else NodeUuid(f"n{number}"),
        )
        context = RequestContext(request_id=request_id, project_id=project, user_id=UserId("owner"))
        spec = RequestSpec(project_id=project, user_id=UserId("owner"), flavor=flavor, group=group)
        if group is not None and cell is not None:
            self.scheduler.slots.append(slot_of(instance, group.uuid, cell))

        def above(connection: sa.Connection) -> None:
            new = build_requests.NewRequest(context=context, instances=(instance,), spec=spec, min_count=1, now=NOW)
            assert (
                quotas.charge(connection, project, UserId("owner"), {instance.uuid: charge_of(flavor)}, UNLIMITED)
                is None
            )
            build_requests.store(connection, new)
            if cell is not None:
                placement = StagedMember(instance=instance.uuid, attempt=0, revision=0, node=None)
                assert instance_mappings.map_to_cell(connection, cell, [placement]) == {instance.uuid}

        await self.services.database.write(above)
        if cell is not None:
            await self.row(instance, cell, spec, context)
        return instance

    async def row(
        self, instance: Instance, cell: CellUuid, spec: RequestSpec | None = None, context: RequestContext | None = None
    ) -> None:
        """Write a cell's row of a server, and its attempt."""
        values = {
            "uuid": instance.uuid,
            "project_id": instance.project_id,
            "user_id": instance.user_id,
            "name": instance.name,
            "hostname": instance.hostname,
            "reservation_id": "r-1",
            "flavorid": "1",
            "metadata": b"{}",
            "state": instance.state.value,
            "attempt": instance.attempt,
            "host": instance.host,
            "node": instance.node,
            "step_at": NOW,
            "created_at": NOW,
            "changed_at": NOW,
            "context": dump(context),
            "spec": dump(spec),
            "alternates": b"[]",
            "body": dump(instance),
        }
        new = NewAttempt(
            instance=instance.uuid,
            attempt=instance.attempt,
            node=instance.node,
            host=instance.host,
            now=NOW,
            explanation=EXPLANATION,
        )

        def unit(connection: sa.Connection) -> None:
            connection.execute(instances.insert().values(**values))
            attempts.begin(connection, [new])

        await self.services.cells[cell].write(unit)


def _register(connection: sa.Connection, identity: AgentIdentity) -> None:
    agents.register(connection, identity, NOW)
    agents.mark_mapped(connection, [identity.node])


def _execute(connection: sa.Connection, statements: Iterable[sa.Executable]) -> None:
    for statement in statements:
        connection.execute(statement)


def host_state(
    host: str, cell: CellUuid, *, up: bool = True, claims: tuple[Claim, ...] = (), servers: int = 0
) -> HostState:
    """Return what placement holds of a host with eight CPUs, two of them used."""
    usage = HostUsage(
        host=host,
        inventory={"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=4096, reserved=512)},
        used={"VCPU": 2},
        servers=servers,
    )
    return HostState(
        node=NodeUuid(f"n{host[1:]}"), cell=cell, usage=usage, incarnation=1, seq=1, claims=claims, up=up, silent=not up
    )


def claim_of(instance: Instance, attempt: int | None = None) -> Claim:
    """Return the claim of a server on the first host."""
    return Claim(
        instance=instance.uuid,
        attempt=instance.attempt if attempt is None else attempt,
        node=NodeUuid("n1"),
        resources={"VCPU": 1},
    )


def slot_of(instance: Instance, group: GroupUuid, cell: CellUuid, attempt: int | None = None) -> Holding:
    """Return the slot of a member of a group on its host, or on the first one if it has none."""
    number = instance.attempt if attempt is None else attempt
    node = instance.node or NodeUuid("n1")
    return Holding(key=ClaimKey(instance.uuid, number, node, group), host=instance.host or "h1", cell=cell)


@contextlib.asynccontextmanager
async def admin_under_test(directory: Path) -> AsyncIterator[Admin]:
    """Open an admin API over fresh databases in `directory`."""
    database = new_database(directory / "api.db", "api")
    named = [Cell(uuid=CELL0, name="cell0"), Cell(uuid=CELL1, name="cell1"), Cell(uuid=CELL2, name="cell2")]
    databases = {cell.uuid: new_database(directory / f"{cell.name}.db", "cell") for cell in named}

    def seed(connection: sa.Connection) -> None:
        for cell in named:
            assert cells.add(connection, cell, NOW)
        for host, of in (("h1", CELL1), ("h2", CELL2)):
            mapping = HostMapping(node=NodeUuid(f"n{host[1:]}"), host=host, cell=of, created_at=NOW)
            host_mappings.add(connection, mapping)
        flavors.add(connection, FLAVOR, NOW)

    await database.write(seed)
    for host, of in (("h1", CELL1), ("h2", CELL2)):
        identity = AgentIdentity(node=NodeUuid(f"n{host[1:]}"), host=host, process=Incarnation("p"))
        await databases[of].write(partial(_register, identity=identity))
    transport = MemoryTransport()
    scheduler = Scheduler(states=[host_state("h1", CELL1), host_state("h2", CELL2)])
    await scheduler.serve(transport)
    ended: list[Over] = []
    volumes = MemoryVolumes()
    services = AdminServices(
        database=database,
        cells=databases,
        names={cell.uuid: cell for cell in named},
        transport=transport,
        networks=EmbeddedNetworks(NetworksSettings(identity_url=""), database, Clock()),
        volumes=volumes,
        clock=Clock(),
        identity=Tokens(),
        sees_server=lambda context, project: context.is_admin or context.project_id == project,
        metrics=lambda: b"skep_things_total 1\n",
        ended=ended.extend,
        openapi=lambda: {"openapi": "3.1.0"},
        audit_pause=0,
        aliases={"gpu": DeviceAlias(matches=(DeviceMatch(vendor_id="10de", product_id="1eb8"),))},
        images=HeldImages(),
        streams=EventStreams(database, EventsSettings(streams_of_project=2, streams=3)),
        filters=("JsonFilter", "SimpleCIDRAffinityFilter", "VolumeFilter"),
    )
    asgi = httpx.ASGITransport(AdminApi(services), raise_app_exceptions=True)
    try:
        hooks = {"response": [Documented(described()).judge]}
        async with httpx.AsyncClient(transport=asgi, base_url="http://cloud", event_hooks=hooks) as client:
            yield Admin(services, scheduler, client, ended, volumes)
    finally:
        for opened in (database, *databases.values()):
            await opened.close()
