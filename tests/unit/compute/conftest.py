from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.compute import disk_doors, disk_fetching
from skep.compute.disk_wire import Pace
from tests.support.agents import AgentStage
from tests.support.disk_wire import Asking, Source, Target


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[AgentStage]:
    async with AgentStage(tmp_path / "host-1") as made:
        yield made


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Source]:
    """Return a host with doors to the disks of a guest."""
    made = Source(tmp_path / "source", Pace(0))
    yield made
    await made.doors.close()
    made.driver.close()


@pytest.fixture
def target(source: Source, tmp_path: Path) -> Target:
    """Return a host that fetches them."""
    return Target(tmp_path / "arrivals", Asking(source))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have targets try again, and sources look at their doors, without long pauses."""
    monkeypatch.setattr(disk_fetching, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(disk_doors, "LOOK_SECONDS", 0.01)
