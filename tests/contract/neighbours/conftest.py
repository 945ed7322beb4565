"""Both ways to reach identity and images: in this process, and over real HTTP with Skep's own credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from skep.contracts.eventually import PATIENCE
from skep.contracts.neighbours.served import PASSWORDS, Neighbours, SteppedClock, neighbours
from skep.neighbours.identity.base import IdentityService
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.images.base import ImageService
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.standalone.images.embedded import EmbeddedImages


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
async def cloud(tmp_path: Path, clock: SteppedClock) -> AsyncIterator[Neighbours]:
    async with neighbours(tmp_path, clock) as opened, opened.served():
        yield opened


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def credentials(cloud: Neighbours) -> ServiceCredentials:
    return ServiceCredentials(
        auth_url=cloud.identity_url,
        username="admin",
        password=PASSWORDS["admin"],
        project_name="admin",
        timeout=PATIENCE,
        retries=0,
    )


@pytest.fixture(params=["embedded", "keystone"])
def identity(
    request: pytest.FixtureRequest,
    cloud: Neighbours,
    http: httpx.AsyncClient,
    credentials: ServiceCredentials,
    clock: SteppedClock,
) -> IdentityService:
    if request.param == "embedded":
        return cloud.identity
    return KeystoneIdentity(KeystoneSettings(credentials=credentials), http, clock)


@pytest.fixture(params=["embedded", "glance"])
def images(
    request: pytest.FixtureRequest,
    cloud: Neighbours,
    http: httpx.AsyncClient,
    credentials: ServiceCredentials,
    clock: SteppedClock,
) -> ImageService:
    if request.param == "embedded":
        return EmbeddedImages(cloud.images)
    return GlanceImages(ServiceSession(credentials, http, clock))
