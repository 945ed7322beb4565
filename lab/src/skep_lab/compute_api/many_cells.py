"""The compute API over many cells, each a database of its own of either kind, with ACTIVE servers spread over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa

import skep.database.api.tables  # noqa: F401 - declares them
from skep.api.policy import Policy
from skep.api.services import ApiServices
from skep.database.api import build_requests, cells, host_mappings, quotas
from skep.database.api import instance_mappings as mappings
from skep.database.api.destinations import StagedMember
from skep.database.api.metadata import metadata as api_metadata
from skep.database.cell import builds
from skep.database.cell.builds import Staged
from skep.database.cell.tables import metadata as cell_metadata
from skep.database.engine import Database
from skep.domain.cells import Cell, HostMapping
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.ids import CELL0, CellUuid, Incarnation, InstanceUuid, NodeUuid, ProjectId, UserId, new_uuid
from skep.domain.ids import new_request_id as request_id
from skep.domain.instances import Instance, PowerState
from skep.domain.quotas import COUNTED, UNLIMITED, charge_of
from skep.domain.request_specs import RequestSpec
from skep.neighbours.networks.absent import NoNetworks
from skep.standalone.images.of_users import EmbeddedOfUsers
from skep.transport.memory import MemoryTransport
from skep_lab.compute_api.api import PROJECT, HeldStates, KnownTokens, MadeImages, NoImages, images_over
from skep_lab.compute_api.servers import ServersUnderTest, assignment_on

FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
OWNER = Incarnation("conductor-1")
OWNER_ID = UserId("member")
BATCH = 200


def cell_number(number: int) -> CellUuid:
    """Return the UUID of cell 1, 2, ..."""
    return CellUuid(f"{number:08d}-1111-4111-8111-111111111111")


class ManyCells(ServersUnderTest):
    """The API, and a way to fill its cells."""

    async def fill(self, servers: int) -> list[InstanceUuid]:
        """Make ACTIVE servers of the member's project, one cell after the other; return them, newest first."""
        numbers = [cell for cell in self.services.cells if cell != CELL0]
        made: list[InstanceUuid] = []
        for start in range(0, servers, BATCH):
            count = min(BATCH, servers - start)
            new = _request(self.services.clock.now(), count, start)
            await self.services.database.write(partial(_store, new=new))
            taken = await self.services.database.write(
                partial(mappings.take, owner=OWNER, now=self.services.clock.now(), limit=count)
            )
            for place, cell in enumerate(numbers):
                await self._build(taken[place :: len(numbers)], cell)
            made += sorted(one.uuid for one in new.instances)
        return made[::-1]

    async def _build(self, taken: Sequence[mappings.Taken], cell: CellUuid) -> None:
        host = f"host-of-{cell[:8]}"
        staged = [
            Staged(
                instance=msgspec.structs.replace(one.instance, attempt=one.attempt),
                assignment=assignment_on(host, cell, one.spec),
                spec=one.spec,
                context=one.context,
                epoch="one",
            )
            for one in taken
        ]
        placements = [
            StagedMember(instance=one.instance.uuid, attempt=one.attempt, revision=one.revision, node=None)
            for one in taken
        ]
        now = self.services.clock.now()

        def unit(connection: sa.Connection) -> None:
            builds.stage(connection, staged, now)
            builds.settle(connection, [(one.instance.uuid, one.attempt) for one in taken], now)
            for one in taken:
                uuid, attempt = one.instance.uuid, one.attempt
                assert builds.may_build(connection, uuid, attempt, host, now)
                assert builds.may_spawn(connection, uuid, attempt, host, now)
                assert builds.built(connection, uuid, attempt, host, now, PowerState.RUNNING, now)

        await self.services.cells[cell].write(unit)
        await self.services.database.write(partial(mappings.map_to_cell, cell=cell, placements=placements))


def _request(now: int, count: int, first: int) -> build_requests.NewRequest:
    context = RequestContext(
        request_id=request_id(), project_id=ProjectId(PROJECT), user_id=OWNER_ID, roles=("member",)
    )
    members = tuple(
        Instance(
            uuid=InstanceUuid(new_uuid()),
            project_id=ProjectId(PROJECT),
            user_id=OWNER_ID,
            name=f"server-{first + number}",
            hostname=f"server-{first + number}",
            flavor=FLAVOR,
            created_at=now,
            request_id=context.request_id,
            launch_index=number,
            metadata={"role": "web"},
        )
        for number in range(count)
    )
    spec = RequestSpec(project_id=ProjectId(PROJECT), user_id=OWNER_ID, flavor=FLAVOR)
    return build_requests.NewRequest(context=context, instances=members, spec=spec, min_count=1, now=now)


def _store(connection: sa.Connection, new: build_requests.NewRequest) -> None:
    charges = {one.uuid: charge_of(FLAVOR) for one in new.instances}
    unlimited = dict.fromkeys(COUNTED, UNLIMITED)
    assert quotas.charge(connection, ProjectId(PROJECT), OWNER_ID, charges, unlimited) is None
    build_requests.store(connection, new)


def _as_it_is(database: Database) -> Database:
    return database


@contextlib.asynccontextmanager
async def many_cells(
    locations: Mapping[str, Path | str],
    *,
    busy_timeout: float = 5.0,
    wrap: Callable[[Database], Database] = _as_it_is,
) -> AsyncIterator[ManyCells]:
    """Open the API over empty databases: `api`, `cell0`, and any number of cells in order.

    `wrap`: what stands before each cell's database. Each cell has one host, mapped and held by the scheduler.
    """
    database = Database(locations["api"], busy_timeout=busy_timeout)
    await asyncio.to_thread(api_metadata.create_all, database.engine)
    opened: dict[CellUuid, Database] = {}
    scheduler, transport = HeldStates(), MemoryTransport()
    await scheduler.serve(transport)
    names = [name for name in locations if name not in ("api", "cell0")]
    for number, name in enumerate(["cell0", *names]):
        cell = Cell(uuid=CELL0 if number == 0 else cell_number(number), name=name)
        one = Database(locations[name], name=name, busy_timeout=busy_timeout)
        await asyncio.to_thread(cell_metadata.create_all, one.engine)
        opened[cell.uuid] = wrap(one)
        await database.write(partial(cells.add, cell=cell, now=1))
        if number:
            host, node = f"host-of-{cell.uuid[:8]}", NodeUuid(f"{number:08d}-2222-4222-8222-222222222222")
            mapping = HostMapping(node=node, host=host, cell=cell.uuid, created_at=number)
            await database.write(partial(host_mappings.add, new=mapping))
            scheduler.hold(host, node=node, cell=cell.uuid)
    services = ApiServices(
        database=database,
        cells=opened,
        transport=transport,
        clock=Clock(),
        identity=KnownTokens(),
        images=NoImages(),
        image_records=MadeImages(),
        images_of_users=EmbeddedOfUsers(images_over(database, Path("no-images"))),
        networks=NoNetworks(),
        policy=Policy(),
        seal=lambda secret: secret[::-1],
        unseal=lambda sealed: sealed[::-1],
        ended=lambda _over: None,
    )
    cloud = ManyCells(services, asyncio.Queue())
    try:
        yield cloud
    finally:
        await cloud.client.aclose()
        for each in (database, *opened.values()):
            await each.close()
