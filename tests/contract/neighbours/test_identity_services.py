"""Identity in this process and by Keystone's API: the contract, and what Keystone's has beyond it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.identity import IdentityContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, bound, token
from skep.domain.errors import Unavailable, Unreachable
from skep.neighbours.identity.base import IdentityService
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.service_session import ServiceCredentials
from tests.contract.neighbours.conftest import credentials_of


async def _token(cloud: ServedNeighbours, user: str, project: str | None) -> str:
    async with cloud.identity_client() as client:
        return await token(client, user, project)


class TestEmbedded(IdentityContract):
    @pytest.fixture
    async def identity(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[IdentityService]:  # noqa: ARG002  # it has the clock of its cloud
        yield cloud.identity  # noqa: PT022  # as the contract says


class TestKeystone(IdentityContract):
    """Over real HTTP, with Skep's own credentials."""

    @pytest.fixture
    async def identity(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[IdentityService]:
        async with plain_client() as client:
            yield KeystoneIdentity(KeystoneSettings(credentials=credentials_of(cloud)), client, clock)


@pytest.fixture
def keystone(credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock) -> KeystoneIdentity:
    return KeystoneIdentity(KeystoneSettings(credentials=credentials, cache_seconds=300), http, clock)


async def test_keystone_is_asked_once_in_a_while(
    cloud: ServedNeighbours, keystone: KeystoneIdentity, clock: SteppedClock
) -> None:
    good = await _token(cloud, "demo", "demo")
    assert await keystone.validate(good) is not None
    async with cloud.identity_client() as client:
        await client.delete("/v3/auth/tokens", headers={"X-Auth-Token": good, "X-Subject-Token": good})
    assert await keystone.validate(good) is not None
    clock.advance(301)
    assert await keystone.validate(good) is None


async def test_keystone_signs_in_again(
    cloud: ServedNeighbours, keystone: KeystoneIdentity, clock: SteppedClock
) -> None:
    assert await keystone.validate(await _token(cloud, "demo", "demo")) is not None
    clock.advance(4000)
    assert await keystone.validate(await _token(cloud, "demo", "demo")) is not None


async def test_keystone_that_does_not_answer(http: httpx.AsyncClient, clock: SteppedClock) -> None:
    with bound() as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        credentials = ServiceCredentials(auth_url=url, username="u", password="p", timeout=0.5)
        keystone = KeystoneIdentity(KeystoneSettings(credentials=credentials), http, clock)
        with pytest.raises(Unreachable):
            await keystone.validate("token")


async def test_keystone_that_refuses_skep(
    cloud: ServedNeighbours, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    credentials = ServiceCredentials(auth_url=cloud.identity_url, username="admin", password="wrong")
    keystone = KeystoneIdentity(KeystoneSettings(credentials=credentials), http, clock)
    with pytest.raises(Unavailable, match="sign in"):
        await keystone.validate("token")
