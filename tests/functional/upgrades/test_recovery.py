"""A cell goes back in time under agents of a release that cannot tell what they have: nothing of theirs is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.contracts.eventually import eventually
from skep.processes.backups import back_up, restore
from skep.processes.directory import StateDirectory
from skep.processes.supervisor.plan import ProcessNumbers
from skep_lab.chaos.load import chaos_config
from skep_lab.chaos.upgrade import ORDER
from skep_lab.processes.child import RoleChild
from skep_lab.processes.cloud import ProcessCloud
from skep_lab.processes.release_child import ReleaseChild
from skep_lab.releases import Release, installed, released

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres"), pytest.mark.timeout(1200)]
BEFORE = "0.5.0"
"""The last release whose agents do not tell."""


async def replaced(before: RoleChild | ReleaseChild, after: RoleChild | ReleaseChild) -> None:
    await asyncio.to_thread(before.stop)
    after.start()
    await asyncio.to_thread(after.wait_started)


async def build(cloud: ProcessCloud, name: str) -> str:
    body = {"name": name, "imageRef": cloud.image, "flavorRef": "1", "networks": "none"}
    answer = await asyncio.to_thread(cloud.ask, "POST", "/servers", {"server": body})
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])

    async def active() -> bool:
        shown = await asyncio.to_thread(cloud.ask, "GET", f"/servers/{uuid}")
        return bool(shown.status_code == 200 and shown.json()["server"]["status"] == "ACTIVE")

    await eventually(active, f"{name} is ACTIVE")
    return uuid


async def recovery(cloud: ProcessCloud) -> Any:
    return (await asyncio.to_thread(cloud.answer, "/admin/v1/recovery"))["recovery"]


def living(cloud: ProcessCloud) -> set[str]:
    """Return the servers whose guests are there."""
    return {life.instance for life in cloud.guests() if life.ended is None}


async def test_guests_of_an_agent_that_cannot_tell_stay(needs: Callable[[Release], Release], tmp_path: Path) -> None:
    interpreter = installed(needs(released(BEFORE)))
    assert interpreter is not None
    config = chaos_config(tmp_path, 10)
    fake = replace(config.compute.fake, failures=())
    config = replace(config, compute=replace(config.compute, require_signatures=False, fake=fake))
    cloud = ProcessCloud(tmp_path, config, cells=1, hosts=1, numbers=ProcessNumbers(scheduler=1))
    cloud.release = interpreter
    await cloud.start()
    try:
        [agent] = cloud.of("compute")
        for role in ORDER[:-1]:
            for new in cloud.of(role):
                await replaced(cloud.older[new.order.name], new)
        await cloud.ready()
        before = await build(cloud, "before")
        directory, place = (
            StateDirectory(cloud.state),
            {"cell1": cloud.postgres.url("cell1"), "api": cloud.postgres.url("api")},
        )
        await asyncio.to_thread(back_up, place, directory, tmp_path / "backup", 1, {"cell1"})
        since = await build(cloud, "since")
        inside = [*cloud.of("super-conductor"), *cloud.of("cell-conductor")]
        for child in inside:
            await asyncio.to_thread(child.stop)
        await asyncio.to_thread(restore, place, directory, tmp_path / "backup", ["cell1"], 2)
        for child in inside:
            child.start()
            await asyncio.to_thread(child.wait_started)

        async def waits() -> bool:
            return [one["host"] for one in (await recovery(cloud))["hosts"]] == ["cell1-host1"]

        await eventually(waits, "the host is waited for")
        assert living(cloud) == {before, since}
        answer = await asyncio.to_thread(cloud.ask, "POST", "/admin/v1/recovery/hosts/cell1-host1/release")
        answer.raise_for_status()

        async def over() -> bool:
            return not (await recovery(cloud))["databases"]

        await eventually(over, "the cell has recovered")
        shown = await asyncio.to_thread(cloud.answer, f"/servers/{before}")
        assert shown["server"]["status"] == "ACTIVE"
        assert living(cloud) == {before, since}
        # An upgraded agent that starts brings what it has: nothing of it is undone either.
        await replaced(cloud.older[agent.order.name], agent)
        await cloud.ready()
        assert living(cloud) == {before, since}
    finally:
        await cloud.stop()
