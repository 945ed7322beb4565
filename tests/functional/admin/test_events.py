"""The routes of the event log: operators see all of it, users what their project may see."""

from __future__ import annotations

import dataclasses
from functools import partial

import httpx
import pytest

from skep.admin.app import AdminApi
from skep.database.api import events
from skep.domain.context import RequestContext
from skep.domain.ids import RequestId, UserId
from skep.domain.server_events import NewEvent
from skep.http.rates import RateSettings
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity
from tests.support.admin import CELL1, Admin
from tests.support.admin_tokens import PROJECT, Tokens

SERVER = "00000000-0000-4000-8000-000000000001"


def noted(key: str, project: str, type_: str = "server.error") -> NewEvent:
    return NewEvent(
        event_key=key,
        time=1,
        type=type_,
        instance=SERVER,
        project_id=project,
        user_id="u",
        request_id="req-1",
        cell=CELL1,
        host="h1",
        attempt=1,
        data={"reason": "it broke"},
        hidden={"details": "on h1"},
    )


async def told(admin: Admin) -> None:
    """Store two events of the owner's project and one of another."""
    new = [noted("a", PROJECT), noted("b", "another"), noted("c", PROJECT, "server.active")]
    await admin.services.database.write(partial(events.add, new=new, now=1))


async def test_an_operator_sees_all(admin: Admin) -> None:
    await told(admin)
    found = await admin.good("GET", "/events")
    assert [one["cursor"].partition("-")[2] for one in found["events"]] == ["a", "b", "c"]
    first = found["events"][0]
    assert (first["cell"], first["host"], first["time"]) == ("cell1", "h1", "1970-01-01T00:00:00.000001Z")
    assert first["data"] == {"reason": "it broke", "details": "on h1"}
    assert found["more"] is False
    after = await admin.good("GET", f"/events?after={found['next']}")
    assert after == {"events": [], "next": found["next"], "more": False}


async def test_filters(admin: Admin) -> None:
    await told(admin)
    for query, left in (
        (f"project={PROJECT}", 2),
        ("type=server.active", 1),
        ("type=server.active&type=server.error", 3),
        (f"server={SERVER}&limit=2", 2),
        ("server=00000000-0000-4000-8000-000000000009", 0),
    ):
        assert len((await admin.good("GET", f"/events?{query}"))["events"]) == left, query


async def test_a_user_sees_his_project_without_hosts(admin: Admin) -> None:
    await told(admin)
    for token in ("owner", "admin"):
        response = await admin.ask("GET", "/v1/events", token=token)
        assert response.status_code == 200
        found = response.json()
        assert {one["project_id"] for one in found["events"]} <= {PROJECT}
        assert "h1" not in response.text
        assert "cell" not in response.text
        assert CELL1 not in response.text
    owned = (await admin.ask("GET", "/v1/events", token="owner")).json()["events"]
    assert [one["type"] for one in owned] == ["server.error", "server.active"]
    assert owned[0]["data"] == {"reason": "it broke"}
    stranger = (await admin.ask("GET", "/v1/events", token="stranger")).json()
    assert stranger["events"] == []


async def test_users_need_a_token_and_do_not_choose_a_project(admin: Admin) -> None:
    for token in (None, "", "forged"):
        assert (await admin.ask("GET", "/v1/events", token=token)).status_code == 401
    response = await admin.ask("GET", f"/v1/events?project={PROJECT}", token="owner")
    assert response.status_code == 400
    assert "project" in response.json()["error"]["message"]
    assert (await admin.ask("GET", "/admin/v1/events", token="owner")).status_code == 403


async def test_what_is_not_kept_any_more_is_410(admin: Admin) -> None:
    start = (await admin.good("GET", "/events"))["next"]
    await told(admin)
    await admin.services.database.write(partial(events.prune, before=2, now=9, limit=2))
    response = await admin.ask("GET", f"/v1/events?after={start}", token="owner")
    assert response.status_code == 410
    message = response.json()["error"]["message"]
    assert message.startswith("after:")
    oldest = message.rpartition(" ")[2].rstrip(".")
    assert len((await admin.good("GET", f"/events?after={oldest}"))["events"]) == 1


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
            of_project=RateSettings(per_second=0.1, burst=4), of_address=RateSettings(per_second=0.1, burst=3)
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
    owner = RequestContext(request_id=RequestId("req-1"), user_id=UserId("owner"), project_id=PROJECT)
    with limited.limits.project(owner):
        assert limited.told == []
    assert await limited.statuses(3, "owner") == [200] * 3
    refused = await limited.ask("/v1/events", {"X-Auth-Token": "owner", "Accept": "text/event-stream"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    assert refused.json()["error"]["code"] == 429
    assert await limited.statuses(1, "stranger") == [200]
    assert limited.told == ["rate"]


async def test_users_without_a_token_count_for_their_address(limited: Limited) -> None:
    assert await limited.statuses(1, "owner") == [200]
    assert await limited.statuses(5, "forged") == [401] * 3 + [429] * 2
    assert (await limited.ask("/v1/events", {})).status_code == 429
    assert (await limited.ask("/v1/events", {"Authorization": "Bearer skep_a_b"})).status_code == 429
    assert limited.identity.count == 1 + 3, "no further made-up token is looked up"
    assert await limited.statuses(1, "owner") == [200], "who is known is served"
    assert limited.told == ["address"] * 4
