"""What Skep asks of Keystone, and what it makes of the answers: over a transport that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.served import SteppedClock
from skep.domain.errors import Unavailable, Unreachable
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.service_session import CredentialsRefused, ServiceCredentials

LATER = "2100-01-01T00:00:00.000000Z"
READ, CHANGE = Use("compute", "GET", "/v2.1/servers"), Use("compute", "POST", "/v2.1/servers")

Answer = Callable[[httpx.Request], httpx.Response]


class ScriptedKeystone:
    """Signs everybody in; what it says of a token is the next answer of the script, the last one for ever."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.validations: list[httpx.Request] = []
        self.asked = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, headers={"X-Subject-Token": "skeps"}, json={"token": {"expires_at": LATER}})
        self.validations.append(request)
        self.asked.set()
        await self.hold.wait()
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return answer(request)

    def identity(self, clock: SteppedClock, **settings: Any) -> KeystoneIdentity:
        credentials = ServiceCredentials(auth_url="http://keystone", username="skep", password="p", retries=2)
        client = httpx.AsyncClient(transport=httpx.MockTransport(self))
        return KeystoneIdentity(KeystoneSettings(credentials=credentials, **settings), client, clock)


def valid(**more: Any) -> Answer:
    owner = {"id": "u", "name": "demo", "domain": {"id": "default", "name": "Default"}}
    token = {"expires_at": LATER, "user": owner, "project": owner, "roles": [{"name": "member"}], **more}
    return lambda _request: httpx.Response(200, json={"token": token})


def status(code: int) -> Answer:
    return lambda _request: httpx.Response(code, json={})


def silent(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("nothing came", request=request)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.mark.parametrize("first", [silent, status(500), status(503), status(429)])
async def test_a_request_without_a_good_answer_is_tried_again(clock: SteppedClock, first: Answer) -> None:
    keystone = ScriptedKeystone(first, valid())
    assert await keystone.identity(clock).validate("token", READ) is not None
    assert len(keystone.validations) == 2


async def test_tries_have_an_end(clock: SteppedClock) -> None:
    keystone = ScriptedKeystone(silent)
    with pytest.raises(Unreachable):
        await keystone.identity(clock).validate("token", READ)
    assert len(keystone.validations) == 3


async def test_an_answer_without_sense_is_nobodys_token(clock: SteppedClock) -> None:
    keystone = ScriptedKeystone(lambda _request: httpx.Response(200, text="<html>"))
    with pytest.raises(Unavailable):
        await keystone.identity(clock).validate("token", READ)


async def test_requests_that_come_together_are_one_question(clock: SteppedClock) -> None:
    keystone = ScriptedKeystone(valid())
    keystone.hold.clear()
    identity = keystone.identity(clock)
    asking = [asyncio.create_task(identity.validate("token", READ)) for _ in range(20)]
    await keystone.asked.wait()
    asking[0].cancel()
    keystone.hold.set()
    answers = await asyncio.gather(*asking[1:])
    assert all(answer is not None for answer in answers)
    assert len(keystone.validations) == 1


async def test_a_token_is_believed_for_shorter_where_something_changes(clock: SteppedClock) -> None:
    keystone = ScriptedKeystone(valid(), status(404))
    identity = keystone.identity(clock, cache_seconds=300, change_cache_seconds=15)
    assert await identity.validate("token", READ) is not None
    clock.advance(14)
    assert await identity.validate("token", CHANGE) is not None
    clock.advance(2)
    assert await identity.validate("token", READ) is not None
    assert len(keystone.validations) == 1
    assert await identity.validate("token", CHANGE) is None


async def test_a_refused_token_is_remembered_for_a_moment(clock: SteppedClock) -> None:
    keystone = ScriptedKeystone(status(404))
    identity = keystone.identity(clock, change_cache_seconds=15)
    for _ in range(3):
        assert await identity.validate("token", READ) is None
    assert len(keystone.validations) == 1
    clock.advance(16)
    assert await identity.validate("token", READ) is None
    assert len(keystone.validations) == 2


async def test_a_token_without_roles_is_refused_where_others_are_told(clock: SteppedClock) -> None:
    # A trust whose giver has lost the roles: Keystone says 403.
    keystone = ScriptedKeystone(valid(), status(403))
    identity = keystone.identity(clock)
    assert await identity.validate("token", READ) is not None
    assert await identity.validate("of-a-trust", READ) is None
    clock.advance(301)
    with pytest.raises(Unavailable, match="403"):
        await identity.validate("of-a-trust", READ)


async def test_a_user_of_skep_that_may_see_no_token_is_nobodys_fault_who_asks(clock: SteppedClock) -> None:
    with pytest.raises(Unavailable, match="403"):
        await ScriptedKeystone(status(403)).identity(clock).validate("token", READ)


async def test_access_rules_are_asked_for_and_kept(clock: SteppedClock) -> None:
    rule = {"id": "r", "service": "compute", "method": "GET", "path": "/v2.1/servers"}
    keystone = ScriptedKeystone(valid(application_credential={"id": "c", "access_rules": [rule]}))
    identity = keystone.identity(clock)
    assert await identity.validate("token", READ) is not None
    assert await identity.validate("token", CHANGE) is None
    assert await identity.validate("token") is None
    assert keystone.validations[0].headers["OpenStack-Identity-Access-Rules"] == "1.0"


@pytest.mark.parametrize(("rules", "allowed"), [(None, True), ([], False)])
async def test_no_rules_and_an_empty_list_of_rules(clock: SteppedClock, rules: list[Any] | None, allowed: bool) -> None:
    keystone = ScriptedKeystone(valid(application_credential={"id": "c", "access_rules": rules}))
    assert (await keystone.identity(clock).validate("token", READ) is not None) is allowed


async def test_credentials_that_are_refused_are_told_apart(clock: SteppedClock) -> None:
    credentials = ServiceCredentials(auth_url="http://keystone", username="skep", password="wrong")
    client = httpx.AsyncClient(transport=httpx.MockTransport(status(401)))
    with pytest.raises(CredentialsRefused):
        await KeystoneIdentity(KeystoneSettings(credentials=credentials), client, clock).session.sign_in()
