"""Deletes at any moment: nothing is left, nothing comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.contracts.cloud import quick_config, running_cloud
from skep.contracts.eventually import PATIENCE
from skep.domain.ids import InstanceUuid
from skep.telemetry.steps import CrashPoint


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(
    "step",
    [
        "take",
        "select",
        "stage",
        "map",
        "settle",
        "dispatch",
        "claim",
        "may_build",
        "prepare",
        "may_spawn",
        "spawn",
        "built",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        wanted: list[InstanceUuid] = []
        created, deleted = asyncio.Event(), asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                await created.wait()
                deleted.set()
                await cloud.delete(wanted[0])

        cloud.plane.steps.crash_hook = delete_there
        wanted += await cloud.create()
        created.set()
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone(wanted)
        await cloud.nothing_left()


async def test_a_delete_is_repeated_until_the_host_is_back(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(), cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        cell = next(cell for cell in cloud.plane.cells.values() if not cell.is_cell0)
        await cloud.stop_agent("cell1-host1")
        await cloud.delete(uuid)
        assert await cloud.find(uuid) is not None
        await cloud.plane.start_agent(cell, "cell1-host1")
        await cloud.gone([uuid])
        await cloud.nothing_left()
