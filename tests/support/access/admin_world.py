"""An admin API with things of two projects, cells and namespaces, for its matrix: what `admin_rows` names."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from skep.admin import namespaces
from skep.admin.app import PREFIX, USER_PREFIX, AdminApi
from skep.admin.joining import Messaging
from skep.api.policy import Policy
from skep.database.api.service_tables import credentials
from skep.database.cell import host_keys
from skep.domain.cells import Cell
from skep.domain.context import RequestContext
from skep.domain.ids import NodeUuid, ProjectId
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity
from skep.transport.base import Transport
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT, TOKENS
from tests.support.access.matrix import Caller, Row, Thing, World
from tests.support.access.snapshots import Snapshot
from tests.support.admin import CELL1, CELL2, Admin, admin_under_test
from tests.support.served_admin import Served, served_admin

OF_OTHERS = "sesame"
"""Stands in all that is another project's, cell's or namespace's."""
READING = ("Get", "List", "SelectDestinations")
"""How the names of messages begin that change nothing."""
SCHEMA: dict[str, Any] = {"fields": {"free_gb": {"type": "integer", "minimum": 0, "maximum": 1000}}}
LATE = 4_102_444_800_000_000
"""The year 2100: a credential that was used then is not marked as used by each request."""
NAMESPACES = ("volume", "network")
FOR_USERS = "users"
"""What a row says that is for a route beside the compute API."""
OPEN_TO_ENROLMENT = "with an enrolment token"


@dataclasses.dataclass(frozen=True)
class Things:
    """What the rows name. Cells and namespaces of the credentials that ask are their own, the others foreign."""

    server: Thing
    cell: Thing
    host: Thing
    silent_host: Thing
    namespace: Thing
    node: Thing
    cell_credential: Thing
    namespace_credential: Thing
    enrolment_token: Thing


class _Recorded:
    """A transport that remembers whether anything was sent that changes something."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.changing: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, address: Any, message: Any, **more: Any) -> Any:
        self._note(message)
        return await self._inner.call(address, message, **more)

    async def cast(self, address: Any, message: Any, *more: Any) -> None:
        self._note(message)
        await self._inner.cast(address, message, *more)

    def _note(self, message: Any) -> None:
        name = type(message).__name__
        if not name.startswith(READING):
            self.changing.append(name)


class _Known:
    """An identity service that knows the callers of the compute API's tests."""

    def remembers(self, _token: str) -> bool:
        return True

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:  # noqa: ARG002 - the port says so
        return TOKENS.get(token)

    async def project_exists(self, project_id: str) -> bool | None:  # noqa: ARG002 - the port says so
        return None


@contextlib.asynccontextmanager
async def admin_world(directory: Path) -> AsyncIterator[tuple[World, Things, tuple[Caller, ...]]]:
    """Open the admin API with its things, and say who asks."""
    async with admin_under_test(directory) as admin, served_admin(admin) as served:
        things, callers = await _things(admin, served)
        transport = _Recorded(admin.services.transport)
        app = AdminApi(_services(admin, transport))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cloud")
        snapshot = Snapshot(directory / f"{name}.db" for name in ("api", "cell0", "cell1", "cell2"))
        lives = itertools.count(2)

        async def send(method: str, url: str, body: Any, row: Row, headers: Mapping[str, str]) -> httpx.Response:
            prefix = USER_PREFIX if row.service == FOR_USERS else PREFIX
            return await client.request(method, f"{prefix}{url}", json=body, headers=dict(headers))

        async def restore() -> None:
            snapshot.restore()
            await namespaces.publish(admin.services)
            await served.tell()
            await _store_states(served, next(lives))
            snapshot.restore()
            transport.changing.clear()

        world = World(send, lambda: snapshot.changed() or bool(transport.changing), restore, (OF_OTHERS,))
        try:
            yield world, things, callers
        finally:
            snapshot.close()
            await client.aclose()


def _services(admin: Admin, transport: Any) -> Any:
    policy = Policy()

    async def messaging(_cell: Cell, _node: NodeUuid, _host: str) -> Messaging:
        return Messaging(url="nats://127.0.0.1:4222", prefix="skep", ca="")

    def sees(context: RequestContext, project: ProjectId) -> bool:
        return policy.allows("os_compute_api:servers:show", context, project_id=project)

    return dataclasses.replace(
        admin.services, transport=transport, identity=_Known(), sees_server=sees, messaging=messaging
    )


async def _things(admin: Admin, served: Served) -> tuple[Things, tuple[Caller, ...]]:
    own = await admin.server(CELL1)
    other = (await admin.server(CELL2, project=ProjectId(OTHER_PROJECT), name=OF_OTHERS)).uuid
    for name in NAMESPACES:
        await served.good("PUT", f"/namespaces/{name}", SCHEMA)
    await _store_states(served, 1)
    await served.good("PATCH", "/hosts/h2", {"forced_down": True})
    await admin.services.cells[CELL1].write(
        partial(host_keys.bind, node=NodeUuid("n1"), host="h1", public_key=b"k" * 32, now=1)
    )
    held = {of: await _credential(served, of, OF_OTHERS) for of in ("cells/cell2", "namespaces/network")}
    mine = {of: await _credential(served, of, "own") for of in ("cells/cell1", "namespaces/volume")}
    spare = {of: await _credential(served, of, "spare") for of in ("cells/cell1", "namespaces/volume")}
    gone = await _credential(served, "cells/cell1", "gone")
    assert await served.status("DELETE", f"/cells/cell1/credentials/{gone['id']}") == 200
    used = sa.update(credentials).values(last_used_at=LATE)
    await admin.write(used)
    enrolment = (await served.good("POST", "/cells/cell1/enrolment-tokens", {"uses": 5}))["enrolment_token"]
    things = Things(
        server=Thing(own.uuid, "00000000-0000-4000-8000-000000000000", other),
        cell=Thing("cell1", "nowhere", "cell2"),
        host=Thing("h1", "h9"),
        silent_host=Thing("h2", "h9"),
        namespace=Thing("volume", "nothing", "network"),
        node=Thing("n1", "n9", "n2"),
        cell_credential=Thing(spare["cells/cell1"]["id"], "0" * 12, held["cells/cell2"]["id"]),
        namespace_credential=Thing(spare["namespaces/volume"]["id"], "0" * 12, held["namespaces/network"]["id"]),
        enrolment_token=Thing(enrolment["id"], "0" * 12),
    )
    return things, _callers(mine, gone, enrolment)


def _callers(mine: Mapping[str, Any], gone: Any, enrolment: Any) -> tuple[Caller, ...]:
    def bearer(token: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {token['secret']}"}

    return (
        Caller("without a token", {}, known=False),
        Caller("with a token that is none", {"X-Auth-Token": "forged"}, known=False),
        Caller("with a credential that was taken back", bearer(gone), known=False),
        Caller(OPEN_TO_ENROLMENT, bearer(enrolment), known=False),
        Caller("cell", bearer(mine["cells/cell1"]), frozenset({"cell"})),
        Caller("namespace", bearer(mine["namespaces/volume"]), frozenset({"namespace"})),
        *(
            Caller(name, {"X-Auth-Token": name}, frozenset(identity.roles), owns=identity.project_id == PROJECT)
            for name, identity in TOKENS.items()
            if name != "other"
        ),
    )


async def _credential(served: Served, of: str, description: str) -> Any:
    return (await served.good("POST", f"/{of}/credentials", {"description": description}))["credential"]


async def _store_states(served: Served, life: int) -> None:
    for name in NAMESPACES:
        state = {"key": "k", "incarnation": life, "seq": 1, "state": {"free_gb": 1}}
        answer = await served.good("PUT", f"/namespaces/{name}/states", {"states": [state]})
        assert answer["accepted"] == 1
