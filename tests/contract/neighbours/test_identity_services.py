"""What every identity service has to do."""

from __future__ import annotations

import httpx
import pytest

from skep.contracts.neighbours.served import Neighbours, SteppedClock, bound, sign_in_body, token
from skep.domain.clock import SECOND
from skep.domain.errors import Unavailable, Unreachable
from skep.domain.ids import RequestId
from skep.neighbours.identity.base import IdentityService
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.service_session import ServiceCredentials


async def _token(cloud: Neighbours, user: str, project: str | None) -> str:
    async with cloud.identity_client() as client:
        return await token(client, user, project)


async def test_a_project_token(cloud: Neighbours, identity: IdentityService, clock: SteppedClock) -> None:
    known = await identity.validate(await _token(cloud, "demo", "demo"))
    assert known is not None
    assert (known.user_name, known.project_name) == ("demo", "demo")
    assert known.project_id == cloud.first.project_ids["demo"]
    assert known.roles == ("member", "reader")
    assert (known.user_domain_id, known.project_domain_name) == ("default", "Default")
    assert known.expires_at == clock.now() + 3600 * SECOND
    assert not known.system_scope
    context = known.context(RequestId("req-1"))
    assert (context.project_id, context.user_id, context.is_admin) == (known.project_id, known.user_id, False)


async def test_an_unscoped_token(cloud: Neighbours, identity: IdentityService) -> None:
    known = await identity.validate(await _token(cloud, "demo", None))
    assert known is not None
    assert (known.project_id, known.roles) == (None, ())


async def test_a_system_token(cloud: Neighbours, identity: IdentityService) -> None:
    body = sign_in_body("admin", None)
    body["auth"]["scope"] = {"system": {"all": True}}
    async with cloud.identity_client() as client:
        response = await client.post("/v3/auth/tokens", json=body)
    known = await identity.validate(response.headers["X-Subject-Token"])
    assert known is not None
    assert known.system_scope
    assert known.is_admin


@pytest.mark.parametrize("forged", ["", "x", "gAAAAABm", "a b", "a\r\nX-Evil: 1", "é", "x" * 10_000, "a\0b"])
async def test_what_is_no_token(identity: IdentityService, forged: str) -> None:
    assert await identity.validate(forged) is None


async def test_a_token_with_one_character_changed(cloud: Neighbours, identity: IdentityService) -> None:
    good = await _token(cloud, "demo", "demo")
    middle = len(good) // 2
    changed = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
    assert await identity.validate(changed) is None


async def test_an_expired_token(cloud: Neighbours, identity: IdentityService, clock: SteppedClock) -> None:
    good = await _token(cloud, "demo", "demo")
    assert await identity.validate(good) is not None
    clock.advance(3600)
    assert await identity.validate(good) is None


async def test_projects(cloud: Neighbours, identity: IdentityService) -> None:
    assert await identity.project_exists(cloud.first.project_ids["demo"]) is True
    assert await identity.project_exists("absent") is False
    assert await identity.project_exists("../users") is False


@pytest.fixture
def keystone(credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock) -> KeystoneIdentity:
    return KeystoneIdentity(KeystoneSettings(credentials=credentials, cache_seconds=300), http, clock)


async def test_keystone_is_asked_once_in_a_while(
    cloud: Neighbours, keystone: KeystoneIdentity, clock: SteppedClock
) -> None:
    good = await _token(cloud, "demo", "demo")
    assert await keystone.validate(good) is not None
    async with cloud.identity_client() as client:
        await client.delete("/v3/auth/tokens", headers={"X-Auth-Token": good, "X-Subject-Token": good})
    assert await keystone.validate(good) is not None
    clock.advance(301)
    assert await keystone.validate(good) is None


async def test_keystone_signs_in_again(cloud: Neighbours, keystone: KeystoneIdentity, clock: SteppedClock) -> None:
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


async def test_keystone_that_refuses_skep(cloud: Neighbours, http: httpx.AsyncClient, clock: SteppedClock) -> None:
    credentials = ServiceCredentials(auth_url=cloud.identity_url, username="admin", password="wrong")
    keystone = KeystoneIdentity(KeystoneSettings(credentials=credentials), http, clock)
    with pytest.raises(Unavailable, match="sign in"):
        await keystone.validate("token")
