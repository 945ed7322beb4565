"""The hint `spread` over HTTP: one that is none is refused, and names what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.contracts.http_cloud import http_config, serving_cloud, signed_in

VERSION = "2.96"


async def test_a_spread_that_is_none_is_refused(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
        group = {"server_group": {"name": "spread", "policy": "soft-affinity"}}
        made = await session.ask("POST", "/os-server-groups", group, version=VERSION)
        assert made.status_code == 200, made.text
        server = {
            "name": "one",
            "flavorRef": "1",
            "imageRef": found.json()["images"][0]["id"],
            "networks": "none",
        }

        async def create(**hints: Any) -> tuple[int, str]:
            body = {"server": server, "os:scheduler_hints": hints}
            answer = await session.ask("POST", "/servers", body, version=VERSION)
            return answer.status_code, answer.text

        uuid = made.json()["server_group"]["id"]
        for spread in ("zone", "zone:0", "moon:1", "zone:1:maybe", "zone:1,zone:2", ["zone:1"], 1, ""):
            status, text = await create(group=uuid, spread=spread)
            assert (status, "os:scheduler_hints.spread. " in text) == (400, True), (spread, text)
        status, text = await create(spread="zone:1")
        assert (status, "os:scheduler_hints.spread. Value: zone:1. Expected: the hint group beside it" in text) == (
            400,
            True,
        )
        assert (await create(group=uuid, spread="zone:1:hard, rack:2:soft"))[0] == 202
