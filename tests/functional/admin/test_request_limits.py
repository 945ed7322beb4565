"""Who asks the admin API too much: projects of owners and addresses without a token; operators do not count."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
from typing import Any

import httpx
import pytest

from skep.admin.app import AdminApi
from skep.domain.context import RequestContext
from skep.domain.credentials import new_token
from skep.domain.ids import RequestId, UserId, new_uuid
from skep.http.rates import RateSettings
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity
from tests.support.admin import CELL1, Admin
from tests.support.admin_tokens import PROJECT, Tokens

OWNER = RequestContext(request_id=RequestId("req-1"), user_id=UserId("owner"), project_id=PROJECT)


class Asked(Tokens):
    """Knows by heart only whom it let in, and counts what it is asked."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.count = 0

    def remembers(self, token: str) -> bool:
        return token in self.known

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:
        self.count += 1
        found = await super().validate(token, use, chained=chained)
        if found is not None:
            self.known.add(token)
        return found


class Limited:
    """The admin API whose limits are small and never grow again."""

    def __init__(self, admin: Admin) -> None:
        self.told: list[str] = []
        self.identity = Asked()
        settings = RequestLimitSettings(
            of_project=RateSettings(per_second=0.1, burst=4),
            of_address=RateSettings(per_second=0.1, burst=3),
            at_once=2,
        )
        self.limits = RequestLimits(settings, now=lambda: 0.0, tell=self.told.append)
        services = dataclasses.replace(admin.services, limits=self.limits, identity=self.identity)
        self.transport = httpx.ASGITransport(AdminApi(services))

    async def ask(self, path: str, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(transport=self.transport, base_url="http://cloud") as client:
            return await client.get(path, headers=headers)

    async def statuses(self, count: int, token: str, path: str = "/v1/events") -> list[int]:
        return [(await self.ask(path, {"X-Auth-Token": token})).status_code for _ in range(count)]


@pytest.fixture
def limited(admin: Admin) -> Limited:
    return Limited(admin)


async def test_users_who_ask_too_often(limited: Limited) -> None:
    """Their project has one measure with the compute API; operators' routes count for nothing."""
    assert await limited.statuses(9, "admin", "/admin/v1/events") == [200] * 9
    with limited.limits.project(OWNER):
        assert limited.told == []
    assert await limited.statuses(3, "owner") == [200] * 3
    refused = await limited.ask("/v1/events", {"X-Auth-Token": "owner", "Accept": "text/event-stream"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    assert refused.json()["error"]["code"] == 429
    assert await limited.statuses(1, "stranger") == [200]
    assert limited.told == ["rate"]


async def test_owners_who_ask_for_placements_too_often(admin: Admin, limited: Limited) -> None:
    path = f"/admin/v1/servers/{(await admin.server(CELL1)).uuid}/placement"
    with contextlib.ExitStack() as under_way:
        for _ in range(2):
            under_way.enter_context(limited.limits.project(OWNER))
        assert await limited.statuses(1, "owner", path) == [429]
        assert await limited.statuses(9, "admin", path) == [200] * 9, "an operator of the same project"
    assert await limited.statuses(3, "owner", path) == [200, 200, 429]
    assert limited.told == ["at_once", "rate"]


async def test_users_without_a_token_count_for_their_address(limited: Limited) -> None:
    assert await limited.statuses(1, "owner") == [200]
    assert await limited.statuses(5, "forged") == [401] * 3 + [429] * 2
    assert (await limited.ask("/v1/events", {})).status_code == 429
    assert (await limited.ask("/v1/events", {"Authorization": "Bearer skep_a_b"})).status_code == 429
    assert limited.identity.count == 1 + 3, "no further made-up token is looked up"
    assert await limited.statuses(1, "owner") == [200], "who is known is served"
    assert limited.told == ["address"] * 4


async def test_nor_has_the_admin_api_more_made_up_tokens_looked_up(limited: Limited) -> None:
    assert await limited.statuses(1, "admin", "/admin/v1/cells") == [200]
    assert await limited.statuses(5, "forged", "/admin/v1/cells") == [401] * 3 + [429] * 2
    assert (await limited.ask("/admin/v1/host-states", {"Authorization": "Bearer skep_a_b"})).status_code == 429
    assert limited.identity.count == 1 + 3
    assert await limited.statuses(1, "admin", "/admin/v1/cells") == [200], "an operator who is known is served"
    assert limited.told == ["address"] * 3


async def test_made_up_enrolment_tokens_cost_no_write(
    admin: Admin, limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []
    write = admin.services.database.write

    async def counted(unit: Any, **more: Any) -> Any:
        written.append(unit)
        return await write(unit, **more)

    made = await admin.good("POST", "/cells/cell1/enrolment-tokens", json={"uses": 1})
    monkeypatch.setattr(admin.services.database, "write", counted)
    body = {"host": "h9", "node": new_uuid(), "public_key": base64.b64encode(b"k" * 32).decode()}

    async def enrol(authorization: str | None) -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        async with httpx.AsyncClient(transport=limited.transport, base_url="http://cloud") as client:
            return (await client.post("/admin/v1/enrolments", json=body, headers=headers)).status_code

    good = f"Bearer {made['enrolment_token']['secret']}"
    assert await enrol(good) == 409, "messages stay in this process, so that no host joins it"
    assert len(written) == 1
    asked = [await enrol(one) for one in ("Bearer skep_a_x", f"Bearer {new_token().text}", None, "Bearer skep_a_x")]
    assert asked == [403, 403, 401, 429]
    assert await enrol(good) == 429, "of the address that made up so many"
    assert len(written) == 1
    assert limited.told == ["address"] * 2
