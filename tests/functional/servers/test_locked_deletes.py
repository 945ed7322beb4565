"""Deletes that are accepted while the lock of a server cannot be read."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from skep.database.api import instance_mappings as mappings
from skep_lab.compute_api.servers import CELL1, ServersUnderTest

DELETES: list[tuple[str, str, Any]] = [("DELETE", "", None), ("POST", "/action", {"forceDelete": None})]


async def locked(cloud: ServersUnderTest) -> str:
    """Build a server and have an admin lock it."""
    uuid = await cloud.create()
    await cloud.build(uuid)
    assert (await cloud.ask("POST", f"/servers/{uuid}/action", {"lock": None}, token="admin")).status_code == 202
    return uuid


async def intents(cloud: ServersUnderTest) -> list[bool]:
    """Return of each delete that waits whether a lock refuses it."""
    unit = partial(mappings.deletes_due, now=cloud.services.clock.now(), again_at=0, limit=9)
    return [intent.unless_locked for intent in await cloud.database.write(unit)]


@pytest.mark.parametrize(("method", "path", "body"), DELETES)
async def test_a_delete_that_cannot_read_the_lock_leaves_it_to_the_cell(
    cloud: ServersUnderTest, method: str, path: str, body: Any
) -> None:
    uuid = await locked(cloud)
    assert (await cloud.bad(method, f"/servers/{uuid}{path}", body))[0] == 409
    cells = cloud.services.cells
    assert isinstance(cells, dict)
    cell = cells.pop(CELL1)
    assert (await cloud.bad(method, f"/servers/{uuid}{path}", body, token="other"))[0] == 404
    assert await intents(cloud) == []
    for token, unless_locked in (("member", True), ("admin", False), ("member", False)):
        await cloud.good(method, f"/servers/{uuid}{path}", body, token=token)
        assert await intents(cloud) == [unless_locked]
    cells[CELL1] = cell


@pytest.mark.parametrize(("method", "path", "body"), DELETES)
async def test_a_delete_that_read_the_lock_is_not_refused_later(
    cloud: ServersUnderTest, method: str, path: str, body: Any
) -> None:
    uuid = await locked(cloud)
    await cloud.good("POST", f"/servers/{uuid}/action", {"unlock": None}, token="admin")
    await cloud.good(method, f"/servers/{uuid}{path}", body)
    assert await intents(cloud) == [False]
