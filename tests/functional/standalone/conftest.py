"""The embedded services on a temporary directory. Each answer is judged by the document of its service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, neighbours, token
from skep.standalone import openapi
from tests.support.documented import Documented
from tests.support.network_session import NetworkSession


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def cloud(tmp_path: Path, clock: SteppedClock) -> AsyncIterator[ServedNeighbours]:
    async with neighbours(tmp_path, clock, image_size_cap=8 << 20) as opened:
        yield opened


@pytest.fixture
async def identity(cloud: ServedNeighbours) -> AsyncIterator[httpx.AsyncClient]:
    async with cloud.identity_client() as client:
        client.event_hooks = {"response": [Documented(openapi.identity()).judge]}
        yield client


@pytest.fixture
async def images(cloud: ServedNeighbours) -> AsyncIterator[httpx.AsyncClient]:
    async with cloud.images_client() as client:
        client.event_hooks = {"response": [Documented(openapi.images()).judge]}
        yield client


@pytest.fixture
async def networks(cloud: ServedNeighbours) -> AsyncIterator[NetworkSession]:
    async with cloud.identity_client() as identity, cloud.networks_client() as client:
        client.event_hooks = {"response": [Documented(openapi.networks()).judge]}
        tokens = {name: await token(identity, name, name) for name in ("admin", "demo")}
        yield NetworkSession(client, tokens)
