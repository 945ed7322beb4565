"""Volumes and snapshots that old clients ask the compute API for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.api.server_routes import SERVER_ROUTES
from skep.api.volume_proxy_routes import VOLUME_PROXY_ROUTES
from skep.domain.ids import new_uuid
from skep_lab.compute_api.servers import ServersUnderTest, servers_under_test
from tests.functional.servers.test_volume_attachments import attach, built
from tests.support.memory_volumes import MemoryVolumes

SERVED = (*SERVER_ROUTES, *VOLUME_PROXY_ROUTES)

LAST = 35
"""Microversion until which there are volumes."""


@pytest.fixture
def volumes() -> MemoryVolumes:
    return MemoryVolumes()


@pytest.fixture
async def cloud(tmp_path: Path, volumes: MemoryVolumes) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, volumes=volumes, routes=SERVED) as opened:
        yield opened


async def ask(
    cloud: ServersUnderTest, method: str, path: str, body: Any = None, *, version: int = 1
) -> tuple[int, Any]:
    """Return the status, and the value of the answer's only key."""
    answer = await cloud.ask(method, path, body, version=version)
    return answer.status_code, next(iter(answer.json().values())) if answer.content else None


async def test_a_volume_is_made_shown_and_deleted(cloud: ServersUnderTest) -> None:
    said = {"size": "2", "display_name": "mine", "metadata": {"a": "b"}}
    status, made = await ask(cloud, "POST", "/os-volumes", {"volume": said})
    assert status == 200
    assert {**made, "id": "", "createdAt": ""} == {
        "id": "",
        "createdAt": "",
        "status": "available",
        "size": 2,
        "availabilityZone": None,
        "displayName": "mine",
        "displayDescription": None,
        "snapshotId": None,
        "volumeType": None,
        "metadata": {"a": "b"},
        "attachments": [{}],
    }
    assert await ask(cloud, "GET", f"/os-volumes/{made['id']}") == (200, made)
    for path in ("/os-volumes", "/os-volumes/detail"):
        assert await ask(cloud, "GET", path) == (200, [made])
        assert await ask(cloud, "GET", f"{path}?offset=1") == (200, [])
    assert await ask(cloud, "DELETE", f"/os-volumes/{made['id']}") == (202, None)
    for method in ("GET", "DELETE"):
        assert (await ask(cloud, method, f"/os-volumes/{made['id']}"))[0] == 404


async def test_a_volume_tells_which_server_has_it(cloud: ServersUnderTest, volumes: MemoryVolumes) -> None:
    server, volume_id = await built(cloud), volumes.new_volume()
    await attach(cloud, server, volume_id)
    _, shown = await ask(cloud, "GET", f"/os-volumes/{volume_id}")
    assert shown["attachments"] == [{"id": volume_id, "volumeId": volume_id, "serverId": server}]
    assert (await ask(cloud, "DELETE", f"/os-volumes/{volume_id}"))[0] == 400


@pytest.mark.parametrize("size", ["#$%", "0", "", 0, -1, None, 1.5, 2**31])
async def test_a_size_that_no_volume_has(cloud: ServersUnderTest, volumes: MemoryVolumes, size: Any) -> None:
    status, fault = await ask(cloud, "POST", "/os-volumes", {"volume": {"size": size}})
    assert status == 400
    assert "size" in fault["message"]
    assert volumes.volumes == {}


async def test_what_a_body_has_to_say(cloud: ServersUnderTest) -> None:
    bad: tuple[tuple[str, Any], ...] = (
        ("/os-volumes", {}),
        ("/os-volumes", {"volume": {}}),
        ("/os-volumes", {"volume": {"size": 1, "metadata": {"a": 1}}}),
        ("/os-snapshots", {"snapshot": {}}),
        ("/os-snapshots", {"snapshot": {"volume_id": new_uuid(), "force": "perhaps"}}),
    )
    for path, body in bad:
        assert (await ask(cloud, "POST", path, body))[0] == 400, body


async def test_they_end_with_their_microversion(cloud: ServersUnderTest) -> None:
    assert (await ask(cloud, "GET", "/os-volumes", version=LAST))[0] == 200
    for path in ("/os-volumes", "/os-volumes/detail", "/os-snapshots", f"/os-snapshots/{new_uuid()}"):
        assert (await ask(cloud, "GET", path, version=LAST + 1))[0] == 404


async def test_a_cloud_without_volumes_names_what_it_has_not(tmp_path: Path) -> None:
    async with servers_under_test(tmp_path, routes=SERVED) as bare:
        for path, noun in (("/os-volumes", "volumes"), ("/os-snapshots", "volume snapshots")):
            status, fault = await ask(bare, "GET", path)
            assert (status, f"{noun} are not part of this release" in fault["message"]) == (404, True)
