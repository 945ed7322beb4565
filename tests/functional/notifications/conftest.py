"""A real RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep_lab.rabbitmq import RabbitServer


@pytest.fixture
async def rabbit(tmp_path: Path) -> AsyncIterator[RabbitServer]:
    async with RabbitServer(tmp_path / "rabbitmq") as server:
        yield server
