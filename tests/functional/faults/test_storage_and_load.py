"""A disk that is full, a database that is locked, more work than there is room for: 503, nothing half stored."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from skep.config.sections import QuotaSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry.steps import CrashPoint


async def body_of(cloud: AllInOneCloud, session: ComputeSession, name: str = "one") -> dict[str, object]:
    """Return the body of a plain create."""
    answer = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    return {"server": {"name": name, "imageRef": answer.json()["images"][0]["id"], "flavorRef": "1"}}


async def used(session: ComputeSession) -> int:
    """Return how many servers the project is charged for."""
    limits = (await session.ask("GET", "/limits")).json()["limits"]["absolute"]
    return int(limits["totalInstancesUsed"])


async def active(session: ComputeSession, count: int) -> None:
    """Wait until so many servers are ACTIVE."""

    async def probe() -> bool:
        servers = (await session.ask("GET", "/servers/detail")).json()["servers"]
        return len([server for server in servers if server["status"] == "ACTIVE"]) == count

    await eventually(probe, f"{count} servers are ACTIVE")


async def test_a_full_disk_refuses_creates_and_heals(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud) as session:
        database = cloud.plane.databases.api
        body = await body_of(cloud, session)
        body["server"]["user_data"] = "QUJD" * 10_000  # type: ignore[index]

        def fill(connection: sa.Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        await database.write(fill)
        answers = [await session.ask("POST", "/servers", body) for _ in range(6)]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert all("Retry-After" in answer.headers for answer in refused)
        stored = len(answers) - len(refused)
        assert len((await session.ask("GET", "/servers")).json()["servers"]) == stored
        assert await used(session) == stored
        await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1073741823"))
        assert (await session.ask("POST", "/servers", body)).status_code == 202
        await active(session, stored + 1)


async def test_a_locked_database_refuses_creates_and_heals(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud) as session:
        body = await body_of(cloud, session)
        cloud.plane.databases.api.engine.dispose()
        other = sqlite3.connect(cloud.plane.databases.api.location, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        refused = await session.ask("POST", "/servers", body)
        assert refused.status_code == 503
        other.execute("ROLLBACK")
        other.close()
        assert await used(session) == 0
        assert (await session.ask("POST", "/servers", body)).status_code == 202
        await active(session, 1)


async def test_a_cell_that_cannot_store_is_left_out_until_it_can(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud) as session:
        cell = cloud.plane.databases.cells["cell1"]

        def fill(connection: sa.Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        await cell.write(fill)
        body = await body_of(cloud, session)
        body["server"]["user_data"] = "QUJD" * 10_000  # type: ignore[index]
        for _ in range(4):
            assert (await session.ask("POST", "/servers", body)).status_code == 202
        await active(session, 4)
        servers = (await session.ask("GET", "/servers/detail")).json()["servers"]
        assert {server["OS-EXT-SRV-ATTR:host"].split("-")[0] for server in servers} == {"cell2"}
        await cell.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count = 1073741823"))


async def test_a_backlog_beyond_its_limit_is_503_with_retry_after(tmp_path: Path) -> None:
    config = http_config(tmp_path, backlog_limit=1, quota=QuotaSettings(instances=-1, cores=-1, ram=-1))
    async with serving_cloud(config) as cloud, signed_in(cloud) as session:
        held = asyncio.Event()

        async def hold(_point: CrashPoint) -> None:
            await held.wait()

        cloud.plane.steps.crash_hook = hold
        body = await body_of(cloud, session)
        body["server"]["min_count"] = body["server"]["max_count"] = 3  # type: ignore[index]
        assert (await session.ask("POST", "/servers", body)).status_code == 202

        async def refused() -> bool:
            answer = await session.ask("POST", "/servers", await body_of(cloud, session, "late"))
            return answer.status_code == 503 and "Retry-After" in answer.headers

        await eventually(refused, "creates are refused while the backlog is over its limit")
        cloud.plane.steps.crash_hook = None
        held.set()

        async def taken() -> bool:
            answer = await session.ask("POST", "/servers", await body_of(cloud, session, "later"))
            return answer.status_code == 202

        await eventually(taken, "creates are taken again")


async def test_two_creates_at_the_last_unit_of_quota(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud) as session:
        body = await body_of(cloud, session)
        body["server"]["min_count"] = body["server"]["max_count"] = 9  # type: ignore[index]
        assert (await session.ask("POST", "/servers", body)).status_code == 202
        last = await body_of(cloud, session, "last")
        answers = await asyncio.gather(*(session.ask("POST", "/servers", last) for _ in range(6)))
        assert sorted(answer.status_code for answer in answers) == [202, 403, 403, 403, 403, 403]
        await active(session, 10)
        assert await used(session) == 10
