"""A compute API with things of two projects, for the matrix: what the rows of `compute_rows` name."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import sqlalchemy as sa

from skep.api.console_pages import MARK
from skep.api.policy import Policy
from skep.api.routes import ROUTES
from skep.database.api import aggregates, flavors, host_mappings, key_pairs
from skep.database.api.aggregates import ZONE
from skep.database.api.images import Viewer
from skep.database.cell.tables import instances
from skep.domain.cells import HostMapping
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.ids import CELL0, NodeUuid, UserId, new_uuid
from skep.domain.instances import State
from skep.domain.key_pairs import KeyPair
from skep.standalone.images.service import StandaloneImages
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, TOKENS, images_over
from skep_lab.compute_api.servers import CELL1, CELL2, HOST, NAMES, ServersUnderTest, servers_under_test
from tests.support.access.matrix import Caller, Row, Thing, World
from tests.support.access.snapshots import Snapshot

OF_OTHERS = "sesame"
"""Stands in all that is another project's."""
TURNS = 10
"""Of the event loop, in which what was cast has arrived."""
KEY_OWNER = "member"
"""The user whose key pair is `own` in the rows."""
NODE = NodeUuid("cccccccc-0000-4000-8000-000000000001")
REPORTED = msgspec.structs.replace(
    HOST, node=NODE, usage=msgspec.structs.replace(HOST.usage, host="host-9", hypervisor_hostname="host-9")
)
GROUPS = ("dddddddd-0000-4000-8000-000000000001", "dddddddd-0000-4000-8000-000000000002")
PLACES = ("in a cell", "waiting", "in cell0", "being deleted", "in a cell that does not answer")
"""Where another project's server may be."""
FOR_ALL_CALLERS = PLACES[0]
"""Of the others admins are told other things than of a server in a cell: they are walked without admins."""

CALLERS = (
    Caller("without a token", {}, known=False),
    Caller("with a token that is none", {"X-Auth-Token": "forged"}, known=False),
    *(
        Caller(
            name,
            {"X-Auth-Token": name},
            frozenset(identity.roles),
            owns=identity.project_id == PROJECT,
            himself=name == KEY_OWNER,
            barred=identity.system_scope or identity.domain_id is not None,
        )
        for name, identity in TOKENS.items()
        if name != "other"
    ),
)
"""`other` sees what is foreign here as its own. All rules are for tokens of projects: those of the system or of a
domain are barred."""


@dataclasses.dataclass(frozen=True)
class Things:
    """What the rows name."""

    server: Thing
    stopped: Thing
    by_place: Mapping[str, Thing]
    """The caller's server, and others' in each of `PLACES`."""
    request: Thing
    """The id of the request that made the server."""
    flavor: Thing
    public_flavor: Thing
    group: Thing
    aggregate: Thing
    host: Thing
    service: Thing
    hypervisor: Thing
    image: Thing
    user: Thing
    """One who has a key pair."""
    asked: set[str] = dataclasses.field(default_factory=set)
    """The rules of policy that were asked so far."""


class NotingPolicy(Policy):
    """Notes which rules are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def allows(
        self, rule: str, context: RequestContext, *, project_id: str | None = None, user_id: str | None = None
    ) -> bool:
        self.asked.add(rule)
        return super().allows(rule, context, project_id=project_id, user_id=user_id)


def _viewer(directory: Path) -> Path:
    """Make what the API takes for noVNC, whatever the machine has."""
    mark = directory / "novnc" / MARK
    mark.parent.mkdir(parents=True)
    mark.touch()
    return directory / "novnc"


@contextlib.asynccontextmanager
async def compute_world(directory: Path) -> AsyncIterator[tuple[World, Things]]:
    """Open the API with its things."""
    async with servers_under_test(directory, routes=ROUTES, reported=(REPORTED,)) as cloud:
        policy = NotingPolicy()
        things = dataclasses.replace(await _things(cloud, images_over(cloud.database, directory)), asked=policy.asked)
        cells = {uuid: cell for uuid, cell in cloud.services.cells.items() if uuid != CELL2}
        settings = msgspec.structs.replace(cloud.services.settings, novnc_directory=_viewer(directory))
        services = dataclasses.replace(cloud.services, cells=cells, policy=policy, settings=settings)
        asked = ServersUnderTest(services, cloud.told, ROUTES)
        _forget(cloud)
        snapshot = Snapshot([directory / "api.db", *(directory / f"{name}.db" for name in NAMES.values())])
        newest = {(row.method, row.path, row.action): row.until for row in ROUTES}

        async def send(method: str, url: str, body: Any, row: Row, headers: Mapping[str, str]) -> httpx.Response:
            version = row.version or newest[row.key]
            return await asked.client.request(
                method,
                f"/v2.1{url}",
                json=body,
                headers={"OpenStack-API-Version": f"compute 2.{version}", **headers},
            )

        async def restore() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            snapshot.restore()
            _forget(cloud)

        world = World(send, lambda: snapshot.changed() or not cloud.told.empty(), restore, (OF_OTHERS,))
        try:
            yield world, things
        finally:
            snapshot.close()
            await asked.client.aclose()


def _forget(cloud: ServersUnderTest) -> None:
    lookups = cloud.services.lookups
    for remembered in (lookups.flavors, lookups.images, lookups.hosts):
        remembered.forget()
    while not cloud.told.empty():
        cloud.told.get_nowait()


async def _things(cloud: ServersUnderTest, images: StandaloneImages) -> Things:
    made: dict[str, str] = {}
    for name, token in (("own", "member"), ("stopped", "member"), *((place, "other") for place in PLACES)):
        made[name] = await cloud.create(
            name=name if token == "member" else f"{OF_OTHERS}-{PLACES.index(name)}",
            token=token,
            version=52,
            metadata={"key": name if token == "member" else OF_OTHERS},
            tags=["tag"],
        )
    foreign_stopped = await cloud.create(name=OF_OTHERS, token="other")
    for name in ("own", "stopped", PLACES[0], PLACES[3]):
        await cloud.build(made[name])
    await cloud.build(foreign_stopped)
    await cloud.place(made[PLACES[2]], CELL0)
    await cloud.build(made[PLACES[4]], CELL2)
    await cloud.good("DELETE", f"/servers/{made[PLACES[3]]}", token="other")
    await cloud.services.cells[CELL1].write(partial(_settle, stopped=(made["stopped"], foreign_stopped)))
    for uuid, project in zip(GROUPS, (PROJECT, OTHER_PROJECT), strict=True):
        await cloud.group(uuid, project=project)
    aggregate = await cloud.database.write(_above)
    by_place = {place: Thing(made["own"], _missing(), made[place]) for place in PLACES}
    server = by_place[FOR_ALL_CALLERS]
    return Things(
        server=server,
        stopped=Thing(made["stopped"], _missing(), foreign_stopped),
        by_place=by_place,
        request=Thing(
            await _request(cloud, made["own"], "member"),
            f"req-{new_uuid()}",
            await _request(cloud, made[FOR_ALL_CALLERS], "other"),
        ),
        flavor=Thing("own", "missing", "theirs"),
        public_flavor=Thing("1", "missing"),
        group=Thing(GROUPS[0], _missing(), GROUPS[1]),
        aggregate=Thing(str(aggregate), "999"),
        host=Thing("host-9", "host-8"),
        service=Thing(NODE, _missing()),
        hypervisor=Thing(NODE, _missing()),
        image=Thing(await _image(images, PROJECT, "own"), _missing(), await _image(images, OTHER_PROJECT, OF_OTHERS)),
        user=Thing(KEY_OWNER, "nobody-knows-me", "other"),
    )


async def _image(images: StandaloneImages, project: str, said: str) -> str:
    fields = {"name": said, "visibility": "private", "key": said}
    return (await images.create(fields, Viewer(project_id=project))).id


async def _request(cloud: ServersUnderTest, server: str, token: str) -> str:
    found = await cloud.good("GET", f"/servers/{server}/os-instance-actions", token=token)
    return str(found["instanceActions"][-1]["request_id"])


def _missing() -> str:
    return new_uuid()


def _settle(connection: sa.Connection, stopped: tuple[str, ...]) -> None:
    connection.execute(sa.update(instances).where(instances.c.uuid.in_(stopped)).values(state=State.STOPPED.value))


def _above(connection: sa.Connection) -> int:
    """Store private flavors, a host without servers, and an aggregate."""
    for flavorid, name, project in (("own", "own", PROJECT), ("theirs", OF_OTHERS, OTHER_PROJECT)):
        spec = {"hw:mem_page_size": "large"}
        new = Flavor(flavorid=flavorid, name=name, vcpus=1, memory_mb=512, root_gb=1, is_public=False, extra_specs=spec)
        flavors.add(connection, new, 1)
        flavors.grant(connection, flavorid, project)
    host_mappings.add(connection, HostMapping(node=NODE, host="host-9", cell=CELL1))
    for identity in TOKENS.values():
        of_others = identity.user_id != KEY_OWNER
        pair = KeyPair(name="mine", public_key=OF_OTHERS if of_others else "own", fingerprint="ff")
        key_pairs.add(connection, UserId(identity.user_id), pair, 1)
    added = aggregates.add(connection, uuid=new_uuid(), name="rack", metadata={ZONE: "rack"}, now=1)
    assert added is not None
    return added.id
