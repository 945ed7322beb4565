from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.agents import AgentStage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[AgentStage]:
    async with AgentStage(tmp_path / "host-1") as made:
        yield made
