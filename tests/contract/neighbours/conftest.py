"""Skep's own identity and images over real HTTP, and the credentials with which Skep signs in to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from skep.contracts.eventually import PATIENCE
from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, SteppedClock, neighbours
from skep.neighbours.service_session import ServiceCredentials


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def cloud(tmp_path: Path, clock: SteppedClock) -> AsyncIterator[ServedNeighbours]:
    async with neighbours(tmp_path, clock) as opened, opened.served():
        yield opened


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client() as client:
        yield client


def credentials_of(cloud: ServedNeighbours) -> ServiceCredentials:
    """Skep's own, for the services of a cloud."""
    return ServiceCredentials(
        auth_url=cloud.identity_url,
        username="admin",
        password=PASSWORDS["admin"],
        project_name="admin",
        timeout=PATIENCE,
        retries=0,
    )


@pytest.fixture
def credentials(cloud: ServedNeighbours) -> ServiceCredentials:
    return credentials_of(cloud)
