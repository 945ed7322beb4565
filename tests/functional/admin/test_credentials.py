"""Credentials: a secret that is shown once, bound, hashed, taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from skep.contracts.eventually import eventually
from skep.database.api.service_tables import credentials
from skep.domain.credentials import new_token, parse
from tests.support.served_admin import Served


async def rows(served: Served) -> list[Any]:
    def unit(connection: sa.Connection) -> list[Any]:
        return list(connection.execute(sa.select(credentials)))

    return await served.admin.services.database.read(unit)


async def test_a_secret_is_shown_once_and_stored_as_a_hash(served: Served) -> None:
    made = (await served.good("POST", "/cells/cell1/credentials", {"description": "rack 7"}))["credential"]
    listed = (await served.good("GET", "/cells/cell1/credentials"))["credentials"]
    assert [one["id"] for one in listed] == [made["id"]]
    assert "secret" not in listed[0]
    assert (listed[0]["description"], listed[0]["created_by"], listed[0]["last_used_at"]) == ("rack 7", "admin", None)
    (row,) = await rows(served)
    secret = made["secret"].rpartition(made["id"] + "_")[2]
    assert len(row.secret_hash) == 32
    assert secret not in str(row)
    assert secret.encode() not in row.secret_hash
    assert (await served.good("GET", "/cells/cell2/credentials"))["credentials"] == []


async def test_it_is_refused_once_it_is_taken_back(served: Served) -> None:
    made = (await served.good("POST", "/cells/cell1/credentials", {}))["credential"]
    assert await served.status("GET", "/host-states", secret=made["secret"]) == 200
    assert (await served.good("GET", "/cells/cell1/credentials"))["credentials"][0]["last_used_at"] is not None
    assert await served.status("DELETE", f"/cells/cell2/credentials/{made['id']}") == 404
    assert await served.status("DELETE", f"/cells/cell1/credentials/{made['id']}") == 200
    assert await served.status("GET", "/host-states", secret=made["secret"]) == 401
    assert await served.status("DELETE", f"/cells/cell1/credentials/{made['id']}") == 404


async def test_it_expires(served: Served) -> None:
    secret = await served.secret("cells/cell1", expires_in=3600)
    assert await served.status("GET", "/host-states", secret=secret) == 200
    await served.admin.write(sa.update(credentials).values(expires_at=1))
    assert await served.status("GET", "/host-states", secret=secret) == 401


async def test_the_last_use_is_written_now_and_then_only(served: Served) -> None:
    secret = await served.secret("cells/cell1")
    await served.good("GET", "/host-states", secret=secret)
    (first,) = await rows(served)
    await served.good("GET", "/host-states", secret=secret)
    assert await rows(served) == [first]
    await served.admin.write(sa.update(credentials).values(last_used_at=1))
    await served.good("GET", "/host-states", secret=secret)
    assert (await rows(served))[0].last_used_at > 1


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Bearer x", "Basic eDp5", "Bearer skep_a_b", "Bearer skep__", "Bearer skep_" + "a" * 500, ""],
)
async def test_forged_credentials(served: Served, authorization: str) -> None:
    response = await served.admin.client.get("/admin/v1/host-states", headers={"Authorization": authorization})
    assert response.status_code == 401


async def test_a_right_id_with_a_wrong_secret(served: Served) -> None:
    token = parse(await served.secret("cells/cell1"))
    assert token is not None
    wrong = f"skep_{token.id}_{new_token().secret}"
    assert await served.status("GET", "/host-states", secret=wrong) == 401


async def test_a_scope_has_so_many_and_no_more(served: Served) -> None:
    for _ in range(100):
        await served.secret("cells/cell1")
    assert await served.status("POST", "/cells/cell1/credentials", {}) == 409
    assert await served.status("POST", "/cells/cell2/credentials", {}) == 200


def test_tokens_are_taken_apart_as_they_were_put_together() -> None:
    for _ in range(200):
        token = new_token()
        assert parse(token.text) == token
        assert token.matches(token.digest)
        assert not token.matches(new_token().digest)


async def test_it_is_replaced_while_a_program_uses_it(served: Served) -> None:
    """As `skep keys steps credentials` says: two are good at once, the program takes the other, the first one goes."""
    old = (await served.good("POST", "/cells/cell1/credentials", {}))["credential"]
    used, statuses, ended = [old["secret"]], list[int](), asyncio.Event()

    async def program() -> None:
        while not ended.is_set():
            statuses.append(await served.status("GET", "/host-states", secret=used[-1]))

    async def more() -> None:
        seen = len(statuses)

        async def went_on() -> bool:
            return len(statuses) > seen + 5

        await eventually(went_on, "the program goes on")

    working = asyncio.create_task(program())
    await more()
    new = (await served.good("POST", "/cells/cell1/credentials", {}))["credential"]
    await more()
    used.append(new["secret"])
    await more()
    assert await served.status("DELETE", f"/cells/cell1/credentials/{old['id']}") == 200
    await more()
    ended.set()
    await working
    assert {*statuses} == {200}
    assert await served.status("GET", "/host-states", secret=old["secret"]) == 401
