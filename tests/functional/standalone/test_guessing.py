"""Passwords that are guessed: delays for whoever guesses, no wait for anybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from structlog.testing import capture_logs

from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, SteppedClock, sign_in_body
from skep.standalone.identity.app import identity_app

WRONG = "guess-of-a-password"


@pytest.fixture
async def elsewhere(cloud: ServedNeighbours, identity: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client at another address."""
    transport = httpx.ASGITransport(identity_app(cloud.identity), client=("127.0.0.2", 1))
    async with httpx.AsyncClient(base_url=identity.base_url, transport=transport) as client:
        yield client


async def sign_in(client: httpx.AsyncClient, user: str, password: str | None = None) -> httpx.Response:
    body = sign_in_body(user, None, password or PASSWORDS[user])
    return await client.post("/v3/auth/tokens", json=body)


async def test_guessing_is_slowed_down(identity: httpx.AsyncClient, clock: SteppedClock) -> None:
    with capture_logs() as logs:
        first = [await sign_in(identity, "admin", WRONG) for _ in range(5)]
        crowd = await asyncio.gather(*(sign_in(identity, "admin", WRONG) for _ in range(300)))
    assert {answer.status_code for answer in first} == {401}
    assert {answer.status_code for answer in crowd} == {429}
    assert {answer.headers["Retry-After"] for answer in crowd} == {"1"}
    assert crowd[0].json()["error"]["title"] == "Too Many Requests"
    said = [line for line in logs if line["event"] == "sign-in delayed"]
    assert len(said) == 300
    assert (said[0]["user"], said[0]["address"]) == ("admin", "127.0.0.1")
    assert WRONG not in str(logs)
    assert (await sign_in(identity, "admin")).status_code == 429
    clock.advance(1)
    assert (await sign_in(identity, "admin", WRONG)).status_code == 401
    clock.advance(1)
    refused = await sign_in(identity, "admin")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    clock.advance(1)
    assert (await sign_in(identity, "admin")).status_code == 201
    assert (await sign_in(identity, "admin", WRONG)).status_code == 401
    assert (await sign_in(identity, "admin")).status_code == 201


async def test_a_crowd_that_begins_at_once_has_no_more_guesses(identity: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(sign_in(identity, "admin", WRONG) for _ in range(200)))
    looked_at = [answer for answer in answers if answer.status_code == 401]
    # As many as are free, and those that were being hashed meanwhile.
    assert 5 <= len(looked_at) <= 6
    assert {answer.status_code for answer in answers} == {401, 429}


async def test_nobody_is_locked_out_from_another_address(
    identity: httpx.AsyncClient, elsewhere: httpx.AsyncClient
) -> None:
    assert (await asyncio.gather(*(sign_in(identity, "admin", WRONG) for _ in range(100))))[-1].status_code == 429
    assert (await sign_in(elsewhere, "admin")).status_code == 201
    assert (await sign_in(identity, "demo")).status_code == 201


async def test_an_address_that_tries_many_users_waits(
    identity: httpx.AsyncClient, elsewhere: httpx.AsyncClient
) -> None:
    assert (await sign_in(identity, "demo")).status_code == 201
    statuses = [(await sign_in(identity, f"user{number}", WRONG)).status_code for number in range(30)]
    assert statuses == [401] * 20 + [429] * 10
    assert (await sign_in(identity, "admin")).status_code == 429
    assert (await sign_in(identity, "demo")).status_code == 201
    assert (await sign_in(elsewhere, "admin")).status_code == 201


async def test_right_passwords_are_never_slowed_down(identity: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(sign_in(identity, "demo") for _ in range(90)))
    assert {answer.status_code for answer in answers} == {201}


async def test_a_change_of_password_is_no_other_way_to_guess(identity: httpx.AsyncClient) -> None:
    user = (await sign_in(identity, "demo")).json()["token"]["user"]["id"]
    change = {"user": {"original_password": WRONG, "password": "new"}}
    statuses = [(await identity.post(f"/v3/users/{user}/password", json=change)).status_code for _ in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert (await sign_in(identity, "demo")).status_code == 429
