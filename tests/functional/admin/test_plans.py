"""Where the servers of a host would go: in a whole cloud, by the scheduler that would decide it. Nothing is held."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from skep.cli.openstack_client import client_environment
from skep.config.sections import QuotaSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud

LEFT = "cell1-host1"
LARGE, HUGE = "4", "5"
"""8 and 16 of the 31 GiB of a host."""


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    async with serving_cloud(http_config(tmp_path, quota=QuotaSettings(cores=-1, ram=-1)), cells=1, hosts=3) as opened:
        yield opened


@pytest.fixture
async def session(cloud: AllInOneCloud) -> AsyncIterator[ComputeSession]:
    async with signed_in(cloud) as opened:
        yield opened


async def admin(session: ComputeSession, method: str, path: str, body: Any = None) -> httpx.Response:
    url = f"{str(session.client.base_url).removesuffix('/').removesuffix('/v2.1')}/admin/v1{path}"
    return await session.client.request(method, url, json=body, headers={"X-Auth-Token": session.token})


async def plan(session: ComputeSession, host: str = LEFT) -> Any:
    answer = await admin(session, "GET", f"/hosts/{host}/plan")
    assert answer.status_code == 200, answer.text
    return answer.json()["plan"]


async def status(session: ComputeSession, uuid: str) -> str:
    return str((await session.ask("GET", f"/servers/{uuid}")).json()["server"]["status"])


async def create(cloud: AllInOneCloud, session: ComputeSession, name: str, flavor: str, host: str) -> str:
    images = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    image = images.json()["images"][0]["id"]
    server = {"name": name, "flavorRef": flavor, "imageRef": image, "availability_zone": f"nova:{host}"}
    answer = await session.ask("POST", "/servers", {"server": server})
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])

    async def active() -> bool:
        return await status(session, uuid) == "ACTIVE"

    await eventually(active, f"{name} is ACTIVE")
    return uuid


async def act(session: ComputeSession, uuid: str, body: Any, becomes: str) -> None:
    answer = await session.ask("POST", f"/servers/{uuid}/action", body, version="2.104")
    assert answer.is_success, answer.text

    async def done() -> bool:
        return await status(session, uuid) == becomes

    await eventually(done, f"the server is {becomes}")


async def test_a_plan_counts_what_its_own_moves_would_take(cloud: AllInOneCloud, session: ComputeSession) -> None:
    for host in ("cell1-host2", "cell1-host3"):
        await create(cloud, session, f"of {host}", HUGE, host)
    mine = {await create(cloud, session, f"large {number}", LARGE, LEFT) for number in range(3)}
    found = await plan(session)
    assert (found["host"], found["cell"], found["move"]) == (LEFT, "cell1", "migrate")
    assert {one["server"] for one in found["servers"]} == mine
    assert (found["go"], found["stay"], found["not_planned"]) == (2, 1, 0)
    goes = [one["goes_to"] for one in found["servers"]]
    assert sorted(goes[:2]) == ["cell1-host2", "cell1-host3"]
    stays = found["servers"][2]
    assert (stays["goes_to"], stays["why_not"].endswith("(2 more would be full by then of servers before it)")) == (
        None,
        True,
    )
    assert found["servers"][0]["explanation"]["considered"] == 3
    again = await plan(session)
    assert again == found, "nothing was held"
    # What it says comes true.
    first = found["servers"][0]
    await act(session, first["server"], {"migrate": {"host": first["goes_to"]}}, "VERIFY_RESIZE")


async def test_what_cannot_move_says_why(cloud: AllInOneCloud, session: ComputeSession) -> None:
    paused, moved = [await create(cloud, session, name, LARGE, LEFT) for name in ("paused", "moved")]
    await act(session, paused, {"pause": None}, "PAUSED")
    why = {one["name"]: one["why_not"] for one in (await plan(session))["servers"]}
    assert why == {"paused": "it cannot migrate in vm_state paused", "moved": None}
    await act(session, moved, {"migrate": None}, "VERIFY_RESIZE")
    assert [one["name"] for one in (await plan(session))["servers"]] == ["paused"]
    assert (await plan(session, "cell1-host2"))["host"] == "cell1-host2"
    assert (await admin(session, "GET", "/hosts/nowhere/plan")).status_code == 404
    assert (await admin(session, "GET", f"/hosts/{LEFT}/plan?deep=1")).status_code == 400


async def test_a_server_goes_to_another_cell_as_its_move_does(tmp_path: Path) -> None:
    config = http_config(tmp_path, quota=QuotaSettings(cores=-1, ram=-1))
    async with serving_cloud(config, cells=2, hosts=1) as cloud, signed_in(cloud) as session:
        there = await create(cloud, session, "there", HUGE, "cell2-host1")
        for name in ("one", "other"):
            await create(cloud, session, name, LARGE, LEFT)
        found = await plan(session)
        one, other = found["servers"]
        assert (found["go"], found["stay"], one["goes_to"]) == (1, 1, "cell2-host1")
        assert "closed" not in other["why_not"]
        own, others = other["why_not"].split(". In other cells: ")
        assert own.startswith("No valid host")
        assert others.endswith("(1 more would be full by then of servers before it)")
        assert await plan(session) == found, "nothing was held"
        await act(session, one["server"], {"migrate": None}, "VERIFY_RESIZE")
        found = await plan(session, "cell2-host1")
        assert {server["server"] for server in found["servers"]} == {there, one["server"]}


async def test_a_server_that_may_not_leave_its_cell_stays_by_that_rule(tmp_path: Path) -> None:
    config = http_config(tmp_path)
    config = replace(config, scheduler=replace(config.scheduler, max_cells=1))
    async with serving_cloud(config, cells=2, hosts=1) as cloud, signed_in(cloud) as session:
        uuid = await create(cloud, session, "one", LARGE, LEFT)
        [one] = (await plan(session))["servers"]
        assert one["goes_to"] is None
        assert "in another cell" in one["why_not"]
        assert "on its own host, which is not taken" in one["why_not"]
        assert one["why_not"].endswith(". Other cells were not asked: `[scheduler] max_cells` is 1")
        assert (await admin(session, "PATCH", f"/hosts/{LEFT}", {"forced_down": True})).status_code == 200

        async def is_down() -> bool:
            return bool((await plan(session))["move"] == "evacuate")

        await eventually(is_down, "the host is down")
        [one] = (await plan(session))["servers"]
        assert (one["server"], one["goes_to"]) == (uuid, None)
        assert "Other cells" not in one["why_not"], "an evacuation stays in its cell"


async def test_servers_of_a_host_that_is_down_would_be_evacuated(cloud: AllInOneCloud, session: ComputeSession) -> None:
    uuid = await create(cloud, session, "one", LARGE, LEFT)
    assert (await admin(session, "PATCH", f"/hosts/{LEFT}", {"forced_down": True})).status_code == 200

    async def is_down() -> bool:
        return bool((await plan(session))["move"] == "evacuate")

    await eventually(is_down, "the host is down")
    said = await command(cloud, "host", "plan", LEFT)
    assert f"1 server of {LEFT} would be evacuated, 0 would stay." in said
    found = json.loads(await command(cloud, "host", "plan", LEFT, "--json"))
    assert [(one["server"], one["goes_to"] != LEFT) for one in found["servers"]] == [(uuid, True)]
    await act(session, uuid, {"evacuate": {}}, "SHUTOFF")
    assert (await plan(session))["servers"] == []


async def command(cloud: AllInOneCloud, *words: str) -> str:
    """Run a command of `skep` as an operator does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.cli",
        *words,
        env=client_environment(cloud.clouds_yaml, "skep"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()
