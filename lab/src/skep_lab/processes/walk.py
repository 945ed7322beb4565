"""The crash walk on single processes: one process ends at a point of a step that its role does, all others go on.

Any process of the role may come to the point; the first that does dies there. It is started again as a supervisor does
it, and all must be well before the next point.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import httpx
from msgspec.structs import replace

from skep.config.networks import NetworksSettings
from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config, QuotaSettings
from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import http_config
from skep_lab.crash.points import Point, points_of
from skep_lab.crash.process import POLL_SECONDS
from skep_lab.crash.scenarios import SCENARIOS, delete, failing_build, moving_build
from skep_lab.crash.walk import FAILING, FAILURES, MEMBERS, MOVING, RECOVERY_SECONDS, hosts_seen
from skep_lab.processes.cloud import ProcessCloud
from skep_lab.processes.faults import ProcessFaults, Trigger, role_of
from skep_lab.processes.operator import asked
from skep_lab.witnesses import witness
from skep_lab.witnesses.witness import Findings, Promised

CELLS, HOSTS = 2, 2
NAMES = {failing_build: f"{FAILING}-server", moving_build: f"{MOVING}-server"}
"""What a build is called that comes to the steps of a scenario; others are `server`."""


def walk_config(root: Path) -> Config:
    """Return a cloud whose hosts fail as FAILURES says."""
    config = http_config(root, failures=FAILURES, quota=QuotaSettings(instances=-1, cores=-1, ram=-1))
    # Otherwise the failing host would not be chosen a second time, or by one of the schedulers only.
    return replace(
        config,
        scheduler=SchedulerSettings(build_failure_weight_multiplier=0.0, partition=False),
        networks=NetworksSettings(kind="embedded", port=0),
    )


def two_points_of(step: str) -> tuple[Point, Point]:
    """Return the point before the effect of a step, and one past it: committed and not told, where it commits."""
    points = {point.way: point for point in reversed(points_of(step))}
    return points["before"], points.get("lost") or points["after"]


async def _at_once(_seconds: float) -> None:
    """Start again what died without waiting."""


class RoleWalk:
    """A cloud of processes and what was asked of it."""

    def __init__(self, root: Path, *, hosts: int = HOSTS) -> None:
        """`hosts`: how many each cell has."""
        self.cloud = ProcessCloud(root, walk_config(root), cells=CELLS, hosts=hosts)
        self.faults = ProcessFaults(self.cloud, random.Random(0), _at_once)
        self.asked = Promised()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Have the cloud run as long as the block."""
        await self.cloud.start()
        try:
            yield self
        finally:
            await self.cloud.stop()

    async def at(self, step: str, point: Point) -> None:
        """Let a process end at a point while servers are built or deleted, and see that all is well afterwards.

        Raises AssertionError when nobody came by, or naming what is not well.
        """
        scenario = SCENARIOS[step]
        if scenario is delete:
            await self.create("server")
            await self.built(step, point)
            await self.crash(step, point, self.clear)
            await self.well(f"{point}, while servers were deleted")
        else:
            await self.crash(step, point, lambda: self.create(NAMES.get(scenario, "server")))
            await self.built(step, point)
            await self.clear()
            await self.well(f"{point}, and deletes")
        assert not await self.statuses()

    async def create(self, name: str, members: int = MEMBERS) -> None:
        """Ask for servers until they are promised: a request that was not stored is sent again."""
        server = {"name": name, "flavorRef": "1", "imageRef": self.cloud.image, "networks": "auto"}
        body = {"server": {**server, "config_drive": True, "min_count": members, "max_count": members}}
        answer = await self.sent("POST", "/servers", body)
        if answer is None:
            # It died before it was stored, or after: then all of them are there.
            if await self.statuses():
                return
            answer = await self.sent("POST", "/servers", body)
        assert answer is not None
        answer.raise_for_status()
        self.asked.created.add(answer.json()["server"]["id"])

    async def clear(self) -> None:
        """Ask for the end of all servers."""
        for uuid in await self.statuses():
            self.asked.created.discard(uuid)
            self.asked.deleted.add(uuid)
            answer = await self.sent("DELETE", f"/servers/{uuid}") or await self.sent("DELETE", f"/servers/{uuid}")
            assert answer is not None
            assert answer.status_code in (204, 404), answer.text

    async def built(self, step: str, point: Point) -> None:
        """See that all servers run. Raises AssertionError."""
        await self.well(f"{point}, while servers were built")
        statuses = await self.statuses()
        assert sorted(statuses.values()) == ["ACTIVE"] * MEMBERS, f"{step} {point}: {statuses}"

    async def well(self, when: str) -> None:
        """See that all is well in time. Raises AssertionError naming what is not."""
        findings = await asyncio.to_thread(witness.within, RECOVERY_SECONDS, self._observe)
        assert findings.clean, f"{when}:\n{findings.text()}"

    async def crash(self, step: str, point: Point, trigger: Trigger) -> None:
        """Let a process end at a point to which `trigger` leads. Raises AssertionError when nobody came by."""
        role = role_of(step)
        if not await self.faults.die_at(role, point, seconds=PATIENCE, trigger=trigger):
            raise AssertionError(f"no {role} came by {point}")

    async def statuses(self) -> dict[str, str]:
        """Return what users see."""
        return await asyncio.to_thread(self._statuses)

    def _observe(self) -> Findings:
        return witness.judge(self.cloud.look(self._statuses(), hosts_seen(self)), self.asked, FAILURES)

    def _statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.answer("/servers/detail")["servers"]}

    def answer(self, path: str) -> Any:
        """Return what a GET answers. A cloud that has just lost a process may say 503 for as long as it may recover.

        Raises httpx.HTTPStatusError unless it answers well.
        """
        end = time.monotonic() + RECOVERY_SECONDS
        while (answer := self.cloud.ask("GET", path)).status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            if time.monotonic() > end:
                break
            time.sleep(POLL_SECONDS)
        return answer.raise_for_status().json()

    async def sent(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        """Send a request; None when the process that took it died."""
        return await asked(self.cloud, method, path, body)
