"""Creates that are sent again under one key: one create, one answer; and what is said when nobody knows."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from skep.database.api import kept_answers
from skep.database.api.tables import instance_mappings, quota_charges
from skep.database.api.tables import kept_answers as rows
from skep.database.engine import Database
from skep.domain.clock import SECOND
from skep.domain.errors import OutcomeUnknown
from skep_lab.compute_api.servers import IMAGE, ServersUnderTest, servers_under_test


async def create(
    cloud: ServersUnderTest, key: str | None, *, token: str = "member", version: int = 1, **more: Any
) -> httpx.Response:
    headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute 2.{version}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    body = {"server": {"name": "one", "imageRef": IMAGE, "flavorRef": "1", **more}}
    return await cloud.client.post("/v2.1/servers", headers=headers, json=body)


async def counted(cloud: ServersUnderTest, table: sa.Table) -> int:
    query = sa.select(sa.func.count()).select_from(table)
    return await cloud.database.read(lambda c: c.execute(query).scalar_one())


async def test_a_repeat_gets_the_same_answer_with_the_same_password(cloud: ServersUnderTest) -> None:
    first = await create(cloud, "k1")
    again = await create(cloud, "k1")
    assert (first.status_code, again.status_code) == (202, 202), again.text
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert (await counted(cloud, instance_mappings), await counted(cloud, quota_charges)) == (1, 1)
    [sealed] = await cloud.database.read(lambda c: list(c.scalars(sa.select(rows.c.answer))))
    assert first.json()["server"]["adminPass"].encode() not in sealed


async def test_repeats_at_once_make_one_server(cloud: ServersUnderTest) -> None:
    answers = await asyncio.gather(*(create(cloud, "k1", min_count=2, max_count=2) for _ in range(8)))
    assert len({answer.text for answer in answers}) == 1
    assert await counted(cloud, instance_mappings) == 2


async def test_a_reservation_is_repeated_too(cloud: ServersUnderTest) -> None:
    first = await create(cloud, "k1", return_reservation_id=True)
    assert (await create(cloud, "k1", return_reservation_id=True)).json() == first.json()
    assert "reservation_id" in first.json()


@pytest.mark.parametrize("other", [{"name": "two"}, {"max_count": 2}, {"version": 19}])
async def test_another_body_under_the_key_is_refused(cloud: ServersUnderTest, other: dict[str, Any]) -> None:
    await create(cloud, "k1")
    refused = await create(cloud, "k1", **other)
    assert (refused.status_code, "Idempotency-Key" in refused.text) == (409, True)
    assert await counted(cloud, instance_mappings) == 1


async def test_without_a_key_or_under_another_or_of_another_nothing_is_merged(cloud: ServersUnderTest) -> None:
    answers = [await create(cloud, None) for _ in range(2)]
    answers += [await create(cloud, "k1"), await create(cloud, "k2"), await create(cloud, "k1", token="admin")]
    assert [answer.status_code for answer in answers] == [202] * 5
    assert len({answer.json()["server"]["id"] for answer in answers}) == 5


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "é"])
async def test_a_key_that_is_none_is_refused(cloud: ServersUnderTest, key: str) -> None:
    headers = {b"X-Auth-Token": b"member", b"Idempotency-Key": key.encode("latin-1")}
    body = {"server": {"name": "one", "imageRef": IMAGE, "flavorRef": "1"}}
    refused = await cloud.client.post("/v2.1/servers", headers=headers, json=body)
    assert (refused.status_code, "Idempotency-Key: expected" in refused.text) == (400, True)


async def test_what_was_refused_is_not_kept(cloud: ServersUnderTest) -> None:
    assert (await create(cloud, "k1", flavorRef="none")).status_code == 400
    assert (await create(cloud, "k1")).status_code == 202


async def test_a_key_is_free_again_after_a_day(cloud: ServersUnderTest) -> None:
    first = await create(cloud, "k1")
    old = rows.update().values(expires_at=cloud.services.clock.now())
    await cloud.database.write(lambda c: c.execute(old).rowcount)
    second = await create(cloud, "k1", name="two")
    assert (second.status_code, second.text != first.text) == (202, True)
    later = cloud.services.clock.now() + 2 * kept_answers.KEPT_SECONDS * SECOND
    assert await cloud.database.write(partial(kept_answers.purge, now=later, limit=10)) == 1
    assert await counted(cloud, rows) == 0


async def test_a_repeat_is_answered_when_new_servers_are_not_taken(tmp_path: Path) -> None:
    waiting: list[int] = [0]
    async with servers_under_test(tmp_path, backlog=lambda: waiting[0]) as cloud:
        first = await create(cloud, "k1")
        waiting[0] = 10_000_000
        assert (await create(cloud, "k1")).json() == first.json()
        refused = await create(cloud, "k2")
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert await counted(cloud, instance_mappings) == 1, "a 503 says that nothing was stored"


@pytest.mark.parametrize("is_stored", [False, True])
async def test_an_outcome_that_nobody_knows_names_the_servers(
    cloud: ServersUnderTest, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    write = Database.write

    async def silent(self: Database, unit: Any, **more: Any) -> Any:
        if is_stored:
            await write(self, unit, **more)
        raise OutcomeUnknown("database api did not say whether it stored: gone")

    monkeypatch.setattr(Database, "write", silent)
    unknown = await create(cloud, "k1")
    monkeypatch.undo()
    fault = unknown.json()["computeFault"]
    assert (unknown.status_code, fault["code"], "Retry-After" in unknown.headers) == (504, 504, False)
    [uuid] = fault["servers"]
    assert (await cloud.ask("GET", f"/servers/{uuid}")).status_code == (200 if is_stored else 404)
    again = await create(cloud, "k1")
    assert (again.status_code, (again.json()["server"]["id"] == uuid)) == (202, is_stored)
    assert await counted(cloud, instance_mappings) == 1
