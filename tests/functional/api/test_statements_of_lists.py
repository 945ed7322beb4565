"""A list takes as many statements for many things as for few: none asks once for each thing that it shows."""

from __future__ import annotations

from pathlib import Path

from skep.api.routes import ROUTES
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test
from tests.support.work import Watch, watching

FEW, MANY = 2, 5
"""Of each kind of thing."""
QUERIES = ("", "?all_tenants=1", "?all_projects=1", "?limit=5", "?detailed=1")


async def _make(cloud: ServersUnderTest, first: int, last: int) -> None:
    """Make flavors, groups with servers in them, servers in both cells, aggregates and key pairs, so many of each."""
    for number in range(first, last):
        flavor = {"name": f"f{number}", "ram": 64, "vcpus": 1, "disk": 1, "id": f"f{number}"}
        await cloud.good("POST", "/flavors", {"flavor": {**flavor, "os-flavor-access:is_public": False}}, token="admin")
        await cloud.good("POST", "/os-aggregates", {"aggregate": {"name": f"a{number}"}}, token="admin")
        group = {"name": f"g{number}", "policy": "soft-affinity"}
        made = await cloud.good("POST", "/os-server-groups", {"server_group": group}, version=64)
        hints = {"group": made["server_group"]["id"]}
        await cloud.build(await cloud.create(hints=hints), CELL1 if number % 2 else CELL2)
        await cloud.create(metadata={"k": "v"}, tags=["t"], version=52)


async def _statements(cloud: ServersUnderTest, watch: Watch) -> dict[str, int]:
    """Return how many statements each list takes, the second time that it is asked for."""
    counted: dict[str, int] = {}
    lists = {(route.path, route.until) for route in ROUTES if route.method == "GET" and "{" not in route.path}
    for path, until in sorted(lists):
        for query in QUERIES:
            headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": f"compute 2.{min(until, 74)}"}
            await cloud.client.get(f"/v2.1{path}{query}", headers=headers)
            watch.begin()
            answer = await cloud.client.get(f"/v2.1{path}{query}", headers=headers)
            work = watch.end()
            if answer.status_code == 200:
                counted[f"{path}{query}"] = work.statements
    return counted


async def test_statements_do_not_grow_with_what_is_listed(tmp_path: Path) -> None:
    with watching() as watch:
        async with servers_under_test(tmp_path, routes=ROUTES) as cloud:
            await _make(cloud, 0, FEW)
            few = await _statements(cloud, watch)
            await _make(cloud, FEW, MANY)
            many = await _statements(cloud, watch)
    assert few.keys() == many.keys()
    assert {"/servers", "/servers/detail", "/flavors/detail", "/os-server-groups", "/os-aggregates"} <= few.keys()
    assert sum(few.values()) > len(few) / 2, "statements are counted"
    assert {path: (few[path], many[path]) for path in few if many[path] > few[path]} == {}
