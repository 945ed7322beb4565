"""What new passwords must be like, when they end, and when a user is locked out."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, SteppedClock, sign_in_body, token
from skep.domain.errors import Misconfigured
from skep.standalone.identity.app import identity_app
from skep.standalone.identity.service import StandaloneIdentity

DAY = 86_400


class Ruled:
    """An identity service with rules, as an admin and the user demo see it."""

    def __init__(self, client: httpx.AsyncClient, admin: str, user_id: str) -> None:
        self._client = client
        self._admin = {"X-Auth-Token": admin}
        self._path = f"/v3/users/{user_id}"

    async def sign_in(self, password: str) -> httpx.Response:
        return await self._client.post("/v3/auth/tokens", json=sign_in_body("demo", "demo", password))

    async def change(self, old: str, new: str) -> httpx.Response:
        body = {"user": {"original_password": old, "password": new}}
        return await self._client.post(f"{self._path}/password", json=body)

    async def set(self, password: str) -> httpx.Response:
        body = {"user": {"password": password}}
        return await self._client.patch(self._path, json=body, headers=self._admin)

    async def shown(self) -> Any:
        return (await self._client.get(self._path, headers=self._admin)).json()["user"]


@contextlib.asynccontextmanager
async def ruled(cloud: ServedNeighbours, clock: SteppedClock, **rules: Any) -> AsyncIterator[Ruled]:
    service = StandaloneIdentity(msgspec.structs.replace(cloud.identity.settings, **rules), cloud.database, clock)
    transport = httpx.ASGITransport(identity_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as client:
        admin = await token(client, "admin", "admin")
        listed = await client.get("/v3/users?name=demo", headers={"X-Auth-Token": admin})
        yield Ruled(client, admin, listed.json()["users"][0]["id"])
    service.close()


async def test_a_new_password_matches_the_pattern_and_is_long_enough(
    cloud: ServedNeighbours, clock: SteppedClock
) -> None:
    rules: dict[str, Any] = {"password_regex": r"(?=.*\d).{4,}$", "password_regex_description": "a digit"}
    async with ruled(cloud, clock, minimum_password_length=6, **rules) as user:
        for wrong, named in (("no digits", "a digit"), ("abc4", "at least 6"), ("4" * 256, "at most 255")):
            for answer in (await user.set(wrong), await user.change(PASSWORDS["demo"], wrong)):
                assert answer.status_code == 400
                assert named in answer.json()["error"]["message"]
                assert wrong not in answer.text
        assert (await user.sign_in(PASSWORDS["demo"])).status_code == 201, "what was before stays"
        assert (await user.change(PASSWORDS["demo"], "with 4 digits")).status_code == 204
        assert (await user.sign_in("with 4 digits")).status_code == 201


async def test_a_pattern_that_is_none_is_refused_at_the_start(cloud: ServedNeighbours, clock: SteppedClock) -> None:
    settings = msgspec.structs.replace(cloud.identity.settings, password_regex="(")
    with pytest.raises(Misconfigured, match="password_regex"):
        StandaloneIdentity(settings, cloud.database, clock)


async def test_the_last_passwords_are_not_chosen_again(cloud: ServedNeighbours, clock: SteppedClock) -> None:
    async with ruled(cloud, clock, unique_last_password_count=4) as user:
        present = PASSWORDS["demo"]
        for new in ("first", "second", "third"):
            clock.advance(1)
            assert (await user.change(present, new)).status_code == 204
            present = new
        for old in ("third", "second", "first"):
            refused = await user.change("third", old)
            assert refused.status_code == 400
            assert "last 3" in refused.json()["error"]["message"]
        clock.advance(1)
        assert (await user.change("third", PASSWORDS["demo"])).status_code == 204
        kept = await cloud.database.read(
            lambda connection: connection.exec_driver_sql("SELECT count(*) FROM former_passwords").scalar_one()
        )
        assert kept == 2


async def test_an_admin_may_choose_an_old_one_for_a_user(cloud: ServedNeighbours, clock: SteppedClock) -> None:
    async with ruled(cloud, clock, unique_last_password_count=3) as user:
        assert (await user.set(PASSWORDS["demo"])).status_code == 200
        clock.advance(1)
        assert (await user.change(PASSWORDS["demo"], PASSWORDS["demo"])).status_code == 400


async def test_a_password_that_has_ended_is_good_for_its_change_alone(
    cloud: ServedNeighbours, clock: SteppedClock
) -> None:
    async with ruled(cloud, clock, password_expires_days=30) as user:
        assert (await user.shown())["password_expires_at"] is None, "it was set before there was the rule"
        await user.set("for a month")
        clock.advance(1)
        signed_in = await user.sign_in("for a month")
        shown = signed_in.json()["token"]["user"]["password_expires_at"]
        assert shown == (await user.shown())["password_expires_at"] is not None
        clock.advance(30 * DAY)
        refused = await user.sign_in("for a month")
        assert refused.status_code == 401
        assert "expired" in refused.json()["error"]["message"]
        assert "expired" not in (await user.sign_in("wrong")).json()["error"]["message"]
        assert (await user.change("for a month", "for another month")).status_code == 204
        assert (await user.sign_in("for another month")).status_code == 201


async def test_a_user_is_locked_out_for_a_while(cloud: ServedNeighbours, clock: SteppedClock) -> None:
    rules = {"lockout_failure_attempts": 3, "lockout_duration": 600, "sign_in_failures": 100}
    async with ruled(cloud, clock, **rules) as user:
        for _ in range(2):
            assert (await user.sign_in("wrong")).status_code == 401
        assert (await user.sign_in(PASSWORDS["demo"])).status_code == 201, "a right one begins anew"
        for _ in range(3):
            assert (await user.sign_in("wrong")).status_code == 401
        locked = await user.sign_in(PASSWORDS["demo"])
        assert (locked.status_code, locked.headers["Retry-After"]) == (429, "600")
        clock.advance(599)
        assert (await user.sign_in(PASSWORDS["demo"])).status_code == 429
        clock.advance(1)
        assert (await user.sign_in(PASSWORDS["demo"])).status_code == 201
