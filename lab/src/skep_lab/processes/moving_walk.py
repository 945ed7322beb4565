"""The walk on single processes along a cold move between cells: there, and back.

    async with MovingWalk(root).running() as walk:
        await walk.build()
        await walk.there_and_back(point, point_back)

Each cell has one host, so that a server that migrates has to go to the other cell.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from pathlib import Path

from skep.contracts.eventually import eventually
from skep_lab.crash.move_operations import BACK_ELSEWHERE, COLD_ELSEWHERE
from skep_lab.crash.points import Point
from skep_lab.crash.walk import RECOVERY_SECONDS
from skep_lab.processes.walk import RoleWalk, two_points_of

POINTS_THERE = [point for step in COLD_ELSEWHERE for point in two_points_of(step)]
POINTS_BACK = [point for step in BACK_ELSEWHERE for point in two_points_of(step)]
HOME, AWAY = "cell1-host1", "cell2-host1"


class MovingWalk(RoleWalk):
    """A cloud of processes with one server, which begins and ends each way on the host of the first cell."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, hosts=1)

    async def build(self) -> None:
        """Make the server. Raises AssertionError."""
        await self._closed(AWAY, closed=True)
        await self.create("goes", members=1)
        await self.well("the server is built")
        await self._closed(AWAY, closed=False)
        assert await self._seen() == ("ACTIVE", HOME)

    async def there_and_back(self, there: Point, back: Point) -> None:
        """Let a process end at a point of the way there, and one at a point of the way back; nothing is lost."""
        await self._way({"migrate": None}, there, "VERIFY_RESIZE", AWAY)
        await self._way({"revertResize": None}, back, "ACTIVE", HOME)

    async def _way(self, action: dict[str, None], point: Point, status: str, host: str) -> None:
        await self.crash(point.step, point, partial(self._asked, action))
        await eventually(partial(self._is, status, host), f"{status} on {host}", seconds=RECOVERY_SECONDS)
        await self.well(f"{point}, {next(iter(action))}")
        assert await self._seen() == (status, host)

    async def _asked(self, action: dict[str, None]) -> None:
        [uuid] = await self.statuses()
        answer = await self.sent("POST", f"/servers/{uuid}/action", action)
        assert answer is not None
        assert answer.status_code == HTTPStatus.ACCEPTED, answer.text

    async def _is(self, status: str, host: str) -> bool:
        return await self._seen() == (status, host)

    async def _seen(self) -> tuple[str, str]:
        """Return the status of the one server, and its host."""
        [uuid] = await self.statuses()
        answer = await self.sent("GET", f"/servers/{uuid}")
        assert answer is not None
        server = answer.raise_for_status().json()["server"]
        return server["status"], server["OS-EXT-SRV-ATTR:host"]

    async def _closed(self, host: str, *, closed: bool) -> None:
        """Open a host for new servers, or close it."""
        services = self.cloud.answer(f"/os-services?binary=nova-compute&host={host}")["services"]
        body = {"status": "disabled" if closed else "enabled"}
        answer = await self.sent("PUT", f"/os-services/{services[0]['id']}", body)
        assert answer is not None
        answer.raise_for_status()
