"""Hosts that make no config drives: they are no candidates, and where one is forced the build says why."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.config.compute import ComputeSettings, FakeDriverSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in


async def test_a_server_with_a_drive_goes_to_no_host_that_makes_none(tmp_path: Path) -> None:
    lacking = ComputeSettings(fake=FakeDriverSettings(hosts=1, spawn_delay=0, lacks=("config_drive",)))
    config = msgspec.structs.replace(http_config(tmp_path), compute=lacking)
    async with serving_cloud(config) as cloud, signed_in(cloud) as session:
        flavor = (await session.ask("GET", "/flavors")).json()["flavors"][0]["id"]
        images = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        server = {"name": "s", "flavorRef": flavor, "imageRef": images.json()["images"][0]["id"]}

        async def fault(**more: object) -> str | None:
            made = await session.ask("POST", "/servers", {"server": {**server, **more}})
            path = f"/servers/{made.json()['server']['id']}"

            async def settled() -> dict[str, object] | None:
                shown = (await session.ask("GET", path)).json()["server"]
                return shown if shown["status"] != "BUILD" else None

            shown = await eventually(settled, "the server is built, or is not")
            assert shown is not None
            found = shown.get("fault")
            return str(found) if found else None

        assert await fault() is None
        assert "No valid host" in str(await fault(config_drive=True))
        forced = await fault(config_drive=True, availability_zone="nova:cell1-host1")
        assert "makes no config drives" in str(forced)
