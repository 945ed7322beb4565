"""The key pair of a server: named at its creation or rebuild, and kept as a copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.api.routes import ROUTES
from skep.database.cell import instances
from skep.domain import notifications
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep_lab.compute_api.servers import CELL1, IMAGE, ServersUnderTest, servers_under_test
from tests.support.public_keys import ssh_key

KEY = ssh_key("one")


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        yield opened


async def bring(cloud: ServersUnderTest, name: str, key: str, token: str = "member") -> None:
    await cloud.good("POST", "/os-keypairs", {"keypair": {"name": name, "public_key": key}}, token=token)


async def stored(cloud: ServersUnderTest, uuid: str) -> Instance:
    found = await cloud.services.cells[CELL1].read(lambda c: instances.get(c, InstanceUuid(uuid)))
    assert found is not None
    return found


async def test_a_server_keeps_its_key_whatever_becomes_of_the_pair(cloud: ServersUnderTest) -> None:
    await bring(cloud, "mine", KEY)
    await bring(cloud, "theirs", KEY, token="other")
    uuid = await cloud.create(token="member", key_name="mine")
    assert (await cloud.good("GET", f"/servers/{uuid}", token="member"))["server"]["key_name"] == "mine"
    await cloud.ask("DELETE", "/os-keypairs/mine", token="member")
    await cloud.build(uuid)
    kept = await stored(cloud, uuid)
    assert kept.key_pair is not None
    assert (kept.key_name, kept.key_pair.name, kept.key_pair.public_key) == ("mine", "mine", KEY)
    assert (await cloud.good("GET", f"/servers/{uuid}", token="member"))["server"]["key_name"] == "mine"
    for wanted in ("mine", "theirs"):
        server = {"name": "s", "imageRef": IMAGE, "flavorRef": "1", "key_name": wanted}
        status, text = await cloud.bad("POST", "/servers", {"server": server}, token="member")
        assert (status, "server.key_name" in text) == (400, True)


async def test_the_notifications_of_its_creation_tell_the_key(cloud: ServersUnderTest) -> None:
    await bring(cloud, "mine", KEY)
    uuid = await cloud.create(key_name="mine")
    await cloud.build(uuid)
    server = await stored(cloud, uuid)
    context = RequestContext(request_id=server.request_id, user_id=server.user_id, project_id=server.project_id)
    data = notifications.create(server, context)["nova_object.data"]
    (told,) = data["keypairs"]
    assert told["nova_object.data"]["public_key"] == KEY
    assert data["key_name"] == "mine"
