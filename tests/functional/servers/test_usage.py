"""What projects used, over servers in two cells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.routes import ROUTES
from skep.database.cell.tables import instances
from skep.domain.clock import parse_iso
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test

DAY = "start=2026-01-02T00:00:00&end=2026-01-03T00:00:00"
PATH = "/os-simple-tenant-usage"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        yield opened


async def ran(
    cloud: ServersUnderTest, name: str, since: str, until: str | None = None, *, token: str = "member", **more: Any
) -> str:
    """Make a server that ran from one time to another, in the first cell unless told otherwise."""
    cell = more.pop("cell", CELL1)
    server = await cloud.create(name=name, token=token, **more)
    await cloud.build(server, cell)
    values = {"launched_at": parse_iso(since), "terminated_at": None if until is None else parse_iso(until)}
    statement = sa.update(instances).where(instances.c.uuid == server).values(values)
    await cloud.services.cells[cell].write(lambda connection: connection.execute(statement))
    return server


async def filled(cloud: ServersUnderTest) -> dict[str, str]:
    return {
        "whole": await ran(cloud, "whole", "2026-01-01T00:00:00Z"),
        "half": await ran(cloud, "half", "2026-01-02T06:00:00Z", "2026-01-02T18:00:00Z", cell=CELL2, flavorRef="2"),
        "before": await ran(cloud, "before", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59Z"),
        "after": await ran(cloud, "after", "2026-01-03T00:00:00Z"),
        "theirs": await ran(cloud, "theirs", "2026-01-02T12:00:00Z", token="other"),
    }


async def test_a_project_s_servers_and_their_sum(cloud: ServersUnderTest) -> None:
    servers = await filled(cloud)
    usage = (await cloud.good("GET", f"{PATH}/{PROJECT}?{DAY}", token="reader"))["tenant_usage"]
    listed = {one["name"]: one for one in usage.pop("server_usages")}
    assert usage == {
        "tenant_id": PROJECT,
        "start": "2026-01-02T00:00:00.000000",
        "stop": "2026-01-03T00:00:00.000000",
        "total_hours": 36.0,
        "total_vcpus_usage": 36.0,
        "total_memory_mb_usage": 24 * 512.0 + 12 * 2048.0,
        "total_local_gb_usage": 24 * 1.0 + 12 * 25.0,
    }
    assert set(listed) == {"whole", "half"}
    assert listed["half"] == {
        "instance_id": servers["half"],
        "name": "half",
        "tenant_id": PROJECT,
        "flavor": "m1.small",
        "hours": 12.0,
        "vcpus": 1,
        "memory_mb": 2048,
        "local_gb": 25,
        "started_at": "2026-01-02T06:00:00.000000",
        "ended_at": "2026-01-02T18:00:00.000000",
        "state": "terminated",
        "uptime": 12 * 3600,
    }
    assert (listed["whole"]["ended_at"], listed["whole"]["state"]) == (None, "active")
    assert listed["whole"]["uptime"] > 24 * 3600


async def test_all_projects(cloud: ServersUnderTest) -> None:
    await filled(cloud)
    brief = (await cloud.good("GET", f"{PATH}?{DAY}", token="admin"))["tenant_usages"]
    assert [(one["tenant_id"], one["total_hours"]) for one in brief] == [(PROJECT, 36.0), (OTHER_PROJECT, 12.0)]
    assert all("server_usages" not in one for one in brief)
    detailed = (await cloud.good("GET", f"{PATH}?{DAY}&detailed=1", token="admin"))["tenant_usages"]
    assert [len(one["server_usages"]) for one in detailed] == [2, 1]


async def test_pages_since_2_40(cloud: ServersUnderTest) -> None:
    servers = await filled(cloud)
    seen: list[str] = []
    hours = 0.0
    query = f"?{DAY}&limit=1&detailed=1"
    while query:
        page = await cloud.good("GET", PATH + query, token="admin", version=40)
        for one in page["tenant_usages"]:
            hours += one["total_hours"]
            seen += [server["instance_id"] for server in one["server_usages"]]
        links = page.get("tenant_usages_links")
        query = "?" + links[0]["href"].partition("?")[2] if links else ""
    wanted = [servers["whole"], servers["half"]]
    assert (seen, hours) == ([*sorted(wanted), servers["theirs"]], 48.0)
    before = await cloud.good("GET", f"{PATH}?{DAY}&limit=1", token="admin", version=39)
    assert (len(before["tenant_usages"]), "tenant_usages_links" in before) == (2, False)
    one = await cloud.good("GET", f"{PATH}/{PROJECT}?{DAY}&limit=1", token="member", version=40)
    assert one["tenant_usage_links"][0]["rel"] == "next"


async def test_without_a_period_it_is_that_of_the_question(cloud: ServersUnderTest) -> None:
    await filled(cloud)
    assert await cloud.good("GET", f"{PATH}/{'c' * 32}?{DAY}", token="admin") == {"tenant_usage": {}}
    usage = (await cloud.good("GET", f"{PATH}/{PROJECT}", token="member"))["tenant_usage"]
    assert usage == {} or usage["total_hours"] < 0.1


async def test_what_is_still_to_come_is_not_used_yet(cloud: ServersUnderTest) -> None:
    await filled(cloud)
    until_now = (await cloud.good("GET", f"{PATH}/{PROJECT}?start=2026-01-01T00:00:00", token="member"))["tenant_usage"]
    later = "start=2026-01-01T00:00:00&end=2100-01-01T00:00:00"
    usage = (await cloud.good("GET", f"{PATH}/{PROJECT}?{later}", token="member"))["tenant_usage"]
    assert usage["stop"] < "2100"
    assert usage["total_hours"] == pytest.approx(until_now["total_hours"], abs=1)


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("start=2026-01-03T00:00:00&end=2026-01-02T00:00:00", 1),
        ("start=yesterday", 1),
        ("end=2026-01-02", 1),
        (f"{DAY}&limit=x", 40),
        (f"{DAY}&marker=none", 40),
        (f"{DAY}&unheard=of", 75),
    ],
)
async def test_what_is_no_period(cloud: ServersUnderTest, query: str, version: int) -> None:
    answer = await cloud.ask("GET", f"{PATH}/{PROJECT}?{query}", token="member", version=version)
    assert answer.status_code == 400, answer.text


async def test_one_statement_for_each_cell(cloud: ServersUnderTest) -> None:
    await filled(cloud)
    counted: list[str] = []
    for database in cloud.services.cells.values():
        sa.event.listen(
            database.engine, "before_cursor_execute", lambda _c, _u, statement, *_: counted.append(statement)
        )
    await cloud.good("GET", f"{PATH}?{DAY}&detailed=1", token="admin")
    assert len([one for one in counted if one.startswith("SELECT")]) == len(cloud.services.cells)


async def test_audits_name_the_hosts_that_sent_none(cloud: ServersUnderTest) -> None:
    audits = (await cloud.good("GET", "/os-instance_usage_audit_log", token="admin"))["instance_usage_audit_logs"]
    path = "/os-instance_usage_audit_log/2026-03-17%2012:30:00"
    audit = (await cloud.good("GET", path, token="admin"))["instance_usage_audit_log"]
    hosts = audit["hosts_not_run"]
    assert audit == {
        "period_beginning": "2026-02-01 00:00:00",
        "period_ending": "2026-03-01 00:00:00",
        "num_hosts": len(hosts),
        "num_hosts_done": 0,
        "num_hosts_running": 0,
        "num_hosts_not_run": len(hosts),
        "hosts_not_run": hosts,
        "total_instances": 0,
        "total_errors": 0,
        "overall_status": audits["overall_status"],
        "log": {},
    }
    for wrong in ("yesterday", "2026-13-01%2000:00:00", "0001-01-01%2000:00:00"):
        answer = await cloud.ask("GET", f"/os-instance_usage_audit_log/{wrong}", token="admin")
        assert answer.status_code == 400, answer.text
