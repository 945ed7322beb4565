"""A project, or an address without a token, that asks too much hears 429 in Nova's form; all others go on."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from skep.api.requests import Answer, ApiRequest
from skep.api.roles import ANY_TOKEN
from skep.api.routing import Route
from skep.domain.clock import Clock
from skep.http.rates import RateSettings
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.service_session import ServiceCredentials
from skep_lab.compute_api.api import ApiUnderTest, api_under_test

LIMITS = RequestLimitSettings(
    of_project=RateSettings(per_second=0.1, burst=4), of_address=RateSettings(per_second=0.1, burst=3), at_once=2
)


class Slow:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def __call__(self, _request: ApiRequest) -> Answer:
        self.begun.release()
        await self.go.wait()
        return Answer({})


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def api(tmp_path: Path, told: list[str], slow: Slow) -> AsyncIterator[ApiUnderTest]:
    async def quick(_request: ApiRequest) -> Answer:
        return Answer({})

    routes = [Route("GET", "/quick", quick, ANY_TOKEN), Route("GET", "/slow", slow, ANY_TOKEN)]
    limits = RequestLimits(LIMITS, now=lambda: 0.0, tell=told.append)
    async with api_under_test(tmp_path, routes=routes, limits=limits) as opened:
        yield opened


async def test_a_project_that_asks_too_often(api: ApiUnderTest, told: list[str]) -> None:
    answers = [await api.ask("GET", "/quick", token="member") for _ in range(5)]
    assert [one.status_code for one in answers] == [200] * 4 + [429]
    refused = answers[-1]
    fault = refused.json()["overLimit"]
    assert fault == {"code": 429, "message": "This request was rate-limited.", "retryAfter": "10"}
    assert refused.headers["Retry-After"] == "10"
    assert refused.headers["x-openstack-request-id"]
    assert (await api.ask("GET", "/quick", token="reader")).status_code == 429, "of the same project"
    assert (await api.ask("GET", "/quick", token="other")).status_code == 200
    assert told == ["rate", "rate"]


async def test_a_project_that_asks_too_much_at_once(api: ApiUnderTest, slow: Slow, told: list[str]) -> None:
    waiting = [asyncio.create_task(api.ask("GET", "/slow", token="member")) for _ in range(2)]
    for _ in waiting:
        await slow.begun.acquire()
    refused = await api.ask("GET", "/quick", token="member")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert (await api.ask("GET", "/quick", token="other")).status_code == 200
    slow.go.set()
    assert [(await one).status_code for one in waiting] == [200, 200]
    assert (await api.ask("GET", "/quick", token="member")).status_code == 200
    assert told == ["at_once"]


async def test_an_address_without_a_token(api: ApiUnderTest, told: list[str]) -> None:
    statuses = [(await api.ask("GET", "/quick", token="forged")).status_code for _ in range(2)]
    statuses.append((await api.client.get("/")).status_code)
    assert statuses == [401, 401, 200]
    refused = [await api.ask("GET", "/quick", token="forged"), await api.client.get("/v2.1")]
    assert [one.status_code for one in refused] == [429, 429]
    assert refused[0].json()["overLimit"]["retryAfter"] == refused[0].headers["Retry-After"] == "10"
    assert (await api.ask("GET", "/quick", token="member")).status_code == 200
    assert told == ["address", "address"]


async def test_made_up_tokens_cost_keystone_no_more_than_the_limit(api: ApiUnderTest, told: list[str]) -> None:
    asked: list[httpx.Request] = []
    owner = {"id": "u", "name": "demo", "domain": {"id": "default", "name": "Default"}}
    roles = [{"name": "reader"}]
    token = {"expires_at": "2100-01-01T00:00:00.000000Z", "user": owner, "project": owner, "roles": roles}

    def keystone(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, headers={"X-Subject-Token": "skeps"}, json={"token": token})
        asked.append(request)
        good = request.headers["X-Subject-Token"].startswith("good")
        return httpx.Response(200 if good else 404, json={"token": token})

    credentials = ServiceCredentials(auth_url="http://keystone", username="skep", password="p")
    client = httpx.AsyncClient(transport=httpx.MockTransport(keystone))
    identity = KeystoneIdentity(KeystoneSettings(credentials=credentials), client, Clock())
    api.app.services = dataclasses.replace(api.services, identity=identity)
    assert (await api.ask("GET", "/quick", token="good")).status_code == 200
    statuses = [(await api.ask("GET", "/quick", token=f"made-up-{number}")).status_code for number in range(8)]
    assert statuses == [401] * 3 + [429] * 5
    headers = {"X-Auth-Token": "good", "X-Service-Token": "made up, too"}
    assert (await api.client.get("/v2.1/quick", headers=headers)).status_code == 429
    assert len(asked) == 4, "the good one, and as many as the limit lets through"
    assert (await api.ask("GET", "/quick", token="good")).status_code == 200, "who is known is served"
    assert told == ["address"] * 6
    await client.aclose()
