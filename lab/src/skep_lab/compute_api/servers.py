"""The compute API over real databases: one for the API, cell0 and two cells; what moves servers is the test's to do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import msgspec
import sqlalchemy as sa

from skep.api.app import ComputeApi
from skep.api.policy import Policy
from skep.api.routing import Route
from skep.api.server_routes import SERVER_ROUTES
from skep.api.services import ApiServices, ApiSettings, QuotaDefaults
from skep.contracts.databases import new_database
from skep.database.api import aggregates, cells, flavors, host_mappings, server_groups
from skep.database.api import instance_mappings as mappings
from skep.database.api.destinations import StagedMember
from skep.database.api.server_groups import ServerGroup
from skep.database.cell import builds as cell_builds
from skep.database.cell.builds import Staged
from skep.database.engine import Database
from skep.domain.actions import Over
from skep.domain.assignments import Assignment
from skep.domain.builds import Placed
from skep.domain.cells import Cell, HostMapping
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostState, HostUsage
from skep.domain.ids import CELL0, CellUuid, GroupUuid, Incarnation, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.instances import Fault, PowerState
from skep.domain.request_specs import RequestSpec
from skep.messages.base import Done
from skep.messages.to_cell_conductor import InstancesChanged, QuestionsAsked
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply, PublishOperatorState
from skep.messages.to_super_conductor import (
    CellChanged,
    DeleteInstances,
    OperatorStateChanged,
    ScheduleAndBuildInstances,
)
from skep.neighbours.networks.absent import NoNetworks
from skep.neighbours.networks.base import NetworksOfUsers
from skep.neighbours.volumes.absent import NoVolumes
from skep.neighbours.volumes.base import ServerVolumes, VolumesOfUsers
from skep.standalone.images.of_users import EmbeddedOfUsers
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, cell_conductor
from skep.transport.memory import MemoryTransport
from skep_lab.compute_api.api import PROJECT, KnownTokens, MadeImages, images_over

CELL1 = CellUuid("11111111-1111-4111-8111-111111111111")
CELL2 = CellUuid("22222222-2222-4222-8222-222222222222")
NAMES = {CELL0: "cell0", CELL1: "cell1", CELL2: "cell2"}
IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"
SAVING = "80a599e0-31e7-49b7-b260-868f441e862b"
LARGE = "90a599e0-31e7-49b7-b260-868f441e862b"
OWNER = Incarnation("conductor-1")

IMAGES = {
    IMAGE: Image(id=IMAGE, name="tiny", size=1024, properties={"hw_rng_model": "virtio"}),
    SAVING: Image(id=SAVING, status="saving"),
    LARGE: Image(id=LARGE, min_ram=4096, min_disk=100),
}
FLAVORS = (
    Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1),
    Flavor(flavorid="2", name="m1.small", vcpus=1, memory_mb=2048, root_gb=20, ephemeral_gb=5, swap_mb=1024),
    Flavor(flavorid="3", name="m1.zero", vcpus=1, memory_mb=2048, root_gb=0),
    Flavor(flavorid="4", name="m1.other", vcpus=1, memory_mb=512, root_gb=1, is_public=False),
)


GENEROUS = QuotaDefaults(instances=1000, cores=-1, ram=-1)


class TickingClock(Clock):
    """Goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self._at = 1_800_000_000 * SECOND

    def now(self) -> Timestamp:
        self._at += SECOND
        return Timestamp(self._at)


HeardT = TypeVar("HeardT")


class VolumesOfAll(VolumesOfUsers, ServerVolumes, Protocol):
    """A volume service, for users and for Skep itself."""


class KnownImages:
    """An image service with three images."""

    async def get(self, image_id: str, context: RequestContext) -> Image:  # noqa: ARG002 - the port says so
        if image_id not in IMAGES:
            raise NotFound(f"Image {image_id} could not be found.")
        return IMAGES[image_id]


def assignment_on(host: str, cell: CellUuid, spec: RequestSpec) -> Assignment:
    """Return the assignment of a build on a host whose node is named after it."""
    return Placed(node=NodeUuid(f"node-{host}"), host=host, cell=cell, epoch="e1").assignment(spec)


class ServersUnderTest:
    """The API, and what conductors and hosts would do to its rows."""

    def __init__(
        self,
        services: ApiServices,
        told: asyncio.Queue[Any],
        routes: Iterable[Route] = SERVER_ROUTES,
        ended: Sequence[Over] = (),
        images: MadeImages | None = None,
        asked: Sequence[str] = (),
    ) -> None:
        self.services = services
        self.images = images or MadeImages()
        self.told = told
        self.ended = ended
        self.asked = asked
        """The notifications of what was asked."""
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(ComputeApi(services, routes)), base_url="http://cloud"
        )
        self._numbers = itertools.count(1)

    @property
    def database(self) -> Database:
        return self.services.database

    async def heard(self, kind: type[HeardT]) -> HeardT:
        """Wait until a conductor hears a message of a kind; return it."""
        while True:
            message = await self.told.get()
            if isinstance(message, kind):
                return message

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "member", version: int = 1, **more: Any
    ) -> httpx.Response:
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute 2.{version}"}
        if body is not None:
            more["json"] = body
        return await self.client.request(method, f"/v2.1{path}", headers=headers, **more)

    async def good(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        response = await self.ask(method, path, body, **more)
        assert response.is_success, (response.status_code, response.text)
        return response.json() if response.content else None

    async def bad(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        response = await self.ask(method, path, body, **more)
        assert response.status_code >= 400, response.text
        (fault,) = response.json().values()
        return response.status_code, fault["message"]

    async def create(self, name: str | None = None, *, hints: Any = None, **more: Any) -> str:
        """Create a server and return its id."""
        keys = {key: more.pop(key) for key in ("token", "version") if key in more}
        server = {"name": name or f"server-{next(self._numbers)}", "imageRef": IMAGE, "flavorRef": "1", **more}
        if keys.get("version", 1) >= 37:
            server.setdefault("networks", "auto")
        body: dict[str, Any] = {"server": server}
        if hints is not None:
            body["os:scheduler_hints"] = hints
        answer = await self.good("POST", "/servers", body, **keys)
        return str(answer["server"]["id"])

    async def take(self) -> list[mappings.Taken]:
        """Take all servers that wait."""
        now = self.services.clock.now()
        return await self.database.write(partial(mappings.take, owner=OWNER, now=now, limit=1000))

    async def stage(self, uuid: str, cell: CellUuid, host: str = "host-1") -> mappings.Taken:
        """Write the row of a waiting server into its cell, as hop 4a does."""
        taken = next(one for one in await self.take() if one.instance.uuid == uuid)
        fault = Fault(code=500, message="No valid host: 0 hosts considered", created_at=1, details="host-1: capacity")
        placeless = cell == CELL0
        staged = Staged(
            instance=msgspec.structs.replace(taken.instance, attempt=taken.attempt, fault=fault if placeless else None),
            assignment=None if placeless else assignment_on(host, cell, taken.spec),
            spec=taken.spec,
            context=taken.context,
            epoch="e1",
        )
        now = self.services.clock.now()
        await self.services.cells[cell].write(partial(cell_builds.stage, staged=[staged], now=now))
        return taken

    async def map(self, taken: mappings.Taken, cell: CellUuid) -> None:
        """Point the mapping at the cell, as hop 4b does."""
        placement = StagedMember(
            instance=taken.instance.uuid, attempt=taken.attempt, revision=taken.revision, node=None
        )
        mapped = await self.database.write(partial(mappings.map_to_cell, cell=cell, placements=[placement]))
        assert mapped == {taken.instance.uuid}

    async def settle(self, taken: mappings.Taken, cell: CellUuid) -> None:
        """Let go of the row, as hop 4c does."""
        unit = partial(cell_builds.settle, mapped=[(taken.instance.uuid, taken.attempt)], now=self.services.clock.now())
        await self.services.cells[cell].write(unit)

    async def place(self, uuid: str, cell: CellUuid, host: str = "host-1") -> mappings.Taken:
        """Put a server into a cell: scheduled, or in cell0 in ERROR."""
        taken = await self.stage(uuid, cell, host)
        await self.map(taken, cell)
        await self.settle(taken, cell)
        return taken

    async def build(self, uuid: str, cell: CellUuid = CELL1, host: str = "host-1") -> None:
        """Place a server and make it ACTIVE."""
        taken = await self.place(uuid, cell, host)
        now = self.services.clock.now()

        def unit(connection: sa.Connection) -> None:
            instance = InstanceUuid(uuid)
            assert cell_builds.may_build(connection, instance, taken.attempt, host, now)
            assert cell_builds.may_spawn(connection, instance, taken.attempt, host, now)
            assert cell_builds.built(connection, instance, taken.attempt, host, now, PowerState.RUNNING, now)

        await self.services.cells[cell].write(unit)

    async def group(self, uuid: str, policy: Any = "anti-affinity", project: str = PROJECT) -> None:
        """Make a server group."""
        new = ServerGroup(
            uuid=GroupUuid(uuid),
            name="g",
            policy=policy,
            project_id=ProjectId(project),
            user_id=UserId("member"),
            created_at=1,
        )
        await self.database.write(partial(server_groups.add, group=new, most=-1))


def _seed(connection: sa.Connection) -> None:
    for flavor in FLAVORS:
        flavors.add(connection, flavor, 1)
    for uuid, name in NAMES.items():
        assert cells.add(connection, Cell(uuid=uuid, name=name), 1)
    host_mappings.add(connection, HostMapping(node=NodeUuid("node-host-1"), host="host-1", cell=CELL1))
    host_mappings.add(connection, HostMapping(node=NodeUuid("node-host-2"), host="host-2", cell=CELL1))
    zone = aggregates.add(connection, uuid="u", name="a", metadata={"availability_zone": "east"}, now=1)
    assert zone is not None
    aggregates.add_host(connection, zone.id, "host-2")


HOST = HostState(
    node=NodeUuid("node-host-1"),
    cell=CELL1,
    usage=HostUsage(host="host-1", inventory={}, used={}, hypervisor_hostname="hv-1"),
    incarnation=1,
    seq=1,
    up=True,
)


@contextlib.asynccontextmanager
async def servers_under_test(
    directory: Path,
    quotas: QuotaDefaults = GENEROUS,
    backlog: Callable[[], int] = lambda: 0,
    routes: Iterable[Route] = SERVER_ROUTES,
    reported: tuple[HostState, ...] = (HOST,),
    reclaim: int = 0,
    evacuate_needs_fence: bool = False,
    networks: NetworksOfUsers | None = None,
    volumes: VolumesOfAll | None = None,
) -> AsyncIterator[ServersUnderTest]:
    """Open the API over fresh databases in `directory`; `reported`: the hosts that a scheduler knows.

    `reclaim`: for how many seconds deleted servers are kept. `evacuate_needs_fence`: as the setting.
    `networks`, `volumes`: None: there are none.
    """
    database = new_database(directory / "api.db", "api")
    databases = {uuid: new_database(directory / f"{name}.db", "cell") for uuid, name in NAMES.items()}
    await database.write(_seed)
    told: asyncio.Queue[Any] = asyncio.Queue()
    ended: list[Over] = []
    asked: list[str] = []
    images = MadeImages()
    services = ApiServices(
        database=database,
        cells=databases,
        transport=await _transport(told, reported),
        clock=TickingClock(),
        identity=KnownTokens(),
        images=KnownImages(),
        image_records=images,
        images_of_users=EmbeddedOfUsers(images_over(database, directory)),
        networks=networks or NoNetworks(),
        volumes=volumes or NoVolumes(),
        server_volumes=volumes or NoVolumes(),
        policy=Policy(),
        seal=lambda secret: secret[::-1],
        unseal=lambda sealed: sealed[::-1],
        ended=ended.extend,
        asked=lambda notification, _server, _context: asked.append(notification),
        runs_on="api-1",
        settings=ApiSettings(
            quotas=quotas,
            reclaim_instance_interval=reclaim,
            evacuate_needs_fence=evacuate_needs_fence,
            answer_seconds=0,
        ),
        backlog=backlog,
    )
    opened = ServersUnderTest(services, told, routes, ended, images, asked)
    try:
        yield opened
    finally:
        await opened.client.aclose()
        for one in (database, *databases.values()):
            await one.close()


async def _transport(told: asyncio.Queue[Any], reported: tuple[HostState, ...]) -> MemoryTransport:
    transport = MemoryTransport()

    async def hear(message: Any, _context: RequestContext | None) -> None:
        told.put_nowait(message)

    async def states(_message: Any, _context: RequestContext | None) -> GetHostStatesReply:
        return GetHostStatesReply(hosts=reported, epoch="e1")

    async def publish(message: Any, _context: RequestContext | None) -> Done:
        told.put_nowait(message)
        return Done()

    for_super = (ScheduleAndBuildInstances, DeleteInstances, OperatorStateChanged, CellChanged)
    await transport.serve(SUPER_CONDUCTOR, dict.fromkeys(for_super, hear))
    await transport.serve(SCHEDULER, {GetHostStates: states, PublishOperatorState: publish})
    for uuid in (CELL1, CELL2):
        await transport.serve(cell_conductor(uuid), {InstancesChanged: hear, QuestionsAsked: hear})
    return transport
