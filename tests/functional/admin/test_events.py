"""The routes of the event log: operators see all of it, users what their project may see."""

from __future__ import annotations

from functools import partial

from skep.database.api import events
from skep.domain.server_events import NewEvent
from tests.support.admin import CELL1, Admin
from tests.support.admin_tokens import PROJECT

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
