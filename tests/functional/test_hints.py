"""With passes so far apart that none comes by itself, a hint alone has each kind of work begun and carried on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in

LIVE = {"host": None, "block_migration": False, "disk_over_commit": False}


@pytest.fixture
async def cloud(tmp_path: Any) -> AsyncIterator[tuple[ComputeSession, str]]:
    config = http_config(tmp_path)
    conductor = msgspec.structs.replace(config.conductor, resend_seconds=3600.0, sweep_seconds=3600.0)
    async with (
        serving_cloud(msgspec.structs.replace(config, conductor=conductor), cells=1, hosts=2) as running,
        signed_in(running) as one,
    ):
        yield one, await _image(one, running.images_url)


async def _image(session: ComputeSession, url: str) -> str:
    answer = await session.client.get(f"{url}/v2/images", headers={"X-Auth-Token": session.token})
    return str(answer.json()["images"][0]["id"])


async def test_each_kind_of_work_begins_with_its_hint(cloud: tuple[ComputeSession, str]) -> None:
    session, image = cloud
    asked = {"server": {"name": "one", "imageRef": image, "flavorRef": "1", "networks": "none"}}
    created = await session.ask("POST", "/servers", asked, version="2.37")
    uuid = created.json()["server"]["id"]

    async def reaches(status: str) -> None:
        async def there() -> bool:
            server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
            assert server["status"] != "ERROR", server
            return bool(server["status"] == status and server["OS-EXT-STS:task_state"] is None)

        await eventually(there, f"the server is {status}")

    await reaches("ACTIVE")
    for body, status in (
        ({"os-stop": None}, "SHUTOFF"),
        ({"os-start": None}, "ACTIVE"),
        ({"rebuild": {"imageRef": image}}, "ACTIVE"),
        ({"migrate": None}, "VERIFY_RESIZE"),
        ({"revertResize": None}, "ACTIVE"),
        ({"os-migrateLive": LIVE}, "ACTIVE"),
        ({"shelve": None}, "SHELVED_OFFLOADED"),
        ({"unshelve": None}, "ACTIVE"),
    ):
        answer = await session.ask("POST", f"/servers/{uuid}/action", body)
        assert answer.status_code in (200, 202), (body, answer.text)
        await reaches(status)
    assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

    async def gone() -> bool:
        return (await session.ask("GET", f"/servers/{uuid}")).status_code == 404

    await eventually(gone, "the server is deleted")
