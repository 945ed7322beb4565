"""A host whose clock is off is named to the operator, and no longer once it is right."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from skep.cli.doctor import _clocks, clock_line
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.processes.hosts import DrivenHost

HOUR = 3600


class HostClock(Clock):
    """The clock of one host, which is ahead."""

    ahead = HOUR

    def now(self) -> Timestamp:
        return Timestamp(super().now() + self.ahead * SECOND)


class Told:
    """A cloud that tells of clocks."""

    def __init__(self, clocks: list[dict[str, Any]]) -> None:
        self.clocks = clocks

    def admin(self, _method: str, _path: str) -> dict[str, Any]:
        return {"clocks": self.clocks}


async def clocks(admin: ComputeSession, base: str) -> list[dict[str, Any]]:
    answer = await admin.client.get(f"{base}/admin/v1/clocks", headers={"X-Auth-Token": admin.token})
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["clocks"]
    return found


async def test_a_host_an_hour_ahead_is_named_until_its_clock_is_right(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as admin:
        base = cloud.api_url.removesuffix("/v2.1")
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
        clock, measured = HostClock(), list[float]()
        wrong = DrivenHost(
            dataclasses.replace(cloud.process, clock=clock),
            cell,
            "wrong",
            tmp_path / "wrong",
            cloud.plane.cell_transports[cell.uuid],
            cloud.plane._flusher,
            key=cloud.directory.secrets_key,
            on_clock=measured.append,
        )
        await wrong.start()
        try:

            async def named() -> bool:
                return any(one["process"] == "compute" for one in await clocks(admin, base))

            await eventually(named, "the host is named")
            told = await clocks(admin, base)
            [off] = [one for one in told if one["process"] == "compute"]
            assert (off["host"], off["database"]) == ("wrong", "cell1")
            assert abs(off["seconds_ahead"] - HOUR) < 60
            [check] = _clocks(Told(told))  # type: ignore[arg-type]  # it is only asked for this
            assert (check.verdict, check.message) == ("warning", clock_line(off))
            assert check.message.startswith("compute on wrong is 3")
            assert abs(measured[-1] - HOUR) < 60
            clock.ahead = 0

            async def right() -> bool:
                return not await named()

            await eventually(right, "the clock of the host is right again")
            [check] = _clocks(Told(await clocks(admin, base)))  # type: ignore[arg-type]  # as above
            assert check.verdict == "good"
            assert abs(measured[-1]) < 60
        finally:
            await wrong.stop()
