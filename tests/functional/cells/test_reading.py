"""What users see while a cell is down: what is known at once, the rest marked, and all of it again afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.api.app import ComputeApi
from skep.api.routes import ROUTES
from skep.contracts.eventually import eventually
from skep.database.api import quotas
from skep.domain.ids import ProjectId
from skep.processes.servers.postgres import PostgresServer
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.many_cells import ManyCells, cell_number, many_cells

SERVERS = 12
DOWN = cell_number(3)


@asynccontextmanager
async def three_cells(folder: Path, postgres: PostgresServer) -> AsyncIterator[ManyCells]:
    """Open the API over two cells in files and one on the server, with servers of all of them in turn."""
    names = ["api", "cell0", "cell1", "cell2"]
    locations: dict[str, Path | str] = {name: folder / f"{name}.db" for name in names}
    locations["cell3"] = postgres.create_database("cell3")
    async with many_cells(locations, busy_timeout=1.0) as cloud:
        await cloud.client.aclose()
        transport = httpx.ASGITransport(ComputeApi(cloud.services, ROUTES))
        cloud.client = httpx.AsyncClient(transport=transport, base_url="http://cloud")
        yield cloud


async def paged(cloud: ManyCells, query: str, version: int, size: int) -> list[dict[str, Any]]:
    """Read all pages, each after the last server of the one before."""
    found: list[dict[str, Any]] = []
    marker = ""
    while True:
        page = (await cloud.good("GET", f"{query}?limit={size}{marker}", version=version))["servers"]
        if not page:
            return found
        found += page
        marker = f"&marker={page[-1]['id']}"


async def check_down(cloud: ManyCells, made: list[str]) -> str:
    """Ask for everything that needs the cell; return one of its servers."""
    whole = (await cloud.good("GET", "/servers/detail", version=69))["servers"]
    assert [one["id"] for one in whole] == made
    unknown = [one["id"] for one in whole if one["status"] == "UNKNOWN"]
    assert len(unknown) == SERVERS // 3
    minimal = next(one for one in whole if one["id"] == unknown[0])
    assert set(minimal) == {"id", "status", "tenant_id", "created", "links"}
    plain = (await cloud.good("GET", "/servers", version=69))["servers"]
    assert [one["id"] for one in plain] == made
    for version, known in ((69, made), (68, [one for one in made if one not in unknown])):
        for size in (1, 5):
            assert [one["id"] for one in await paged(cloud, "/servers/detail", version, size)] == known

    lost = unknown[0]
    assert (await cloud.bad("GET", f"/servers/{lost}", version=68))[0] == 503
    shown = (await cloud.good("GET", f"/servers/{lost}", version=96))["server"]
    assert (shown["status"], shown["flavor"]["vcpus"], shown["user_id"]) == ("UNKNOWN", 1, "member")
    assert (await cloud.bad("GET", f"/servers/{lost}/os-instance-actions", version=68))[0] == 503
    [create] = (await cloud.good("GET", f"/servers/{lost}/os-instance-actions", version=69))["instanceActions"]
    assert (create["action"], create["message"][:7]) == ("create", "Unknown")
    status, why = await cloud.bad("POST", f"/servers/{lost}/action", {"os-stop": None})
    assert (status, "does not answer" in why) == (503, True)
    assert (await cloud.bad("PUT", f"/servers/{lost}", {"server": {"name": "new"}}))[0] == 503
    await check_hosts(cloud)
    return str(lost)


async def check_hosts(cloud: ManyCells) -> None:
    """Lists of hosts and services are whole; whose servers cannot be read does not seem empty."""
    services = (await cloud.good("GET", "/os-services", token="admin"))["services"]
    assert len([one for one in services if one["binary"] == "nova-compute"]) == 3
    assert len((await cloud.good("GET", "/os-hypervisors/detail", token="admin", version=53))["hypervisors"]) == 3
    ask = partial(cloud.good, "GET", "/os-hypervisors?with_servers=true", token="admin")
    newest = (await ask(version=75))["hypervisors"]
    assert [len(one["servers"]) if "servers" in one else None for one in newest] == [4, 4, None]
    assert len((await ask(version=74))["hypervisors"]) == 2


@pytest.mark.needs_part("postgres")
@pytest.mark.parametrize("how", ["halted", "gone"])
async def test_a_cell_down_is_marked_and_heals(how: str, tmp_path: Path, postgres: PostgresServer) -> None:
    async with three_cells(tmp_path, postgres) as cloud:
        made = [str(one) for one in await cloud.fill(SERVERS)]
        read = (await cloud.good("GET", "/servers/detail", version=69))["servers"]
        assert [(one["id"], one["status"]) for one in read] == [(one, "ACTIVE") for one in made]
        used = await cloud.database.read(partial(quotas.used, project=ProjectId(PROJECT)))

        postgres.pause() if how == "halted" else postgres.kill()
        lost = await check_down(cloud, made)
        await cloud.good("DELETE", f"/servers/{lost}")
        assert await cloud.database.read(partial(quotas.used, project=ProjectId(PROJECT))) == used
        postgres.resume() if how == "halted" else postgres.start()

        async def healed() -> bool:
            return bool((await cloud.good("GET", f"/servers/{lost}", version=69))["server"]["status"] != "UNKNOWN")

        await eventually(healed, "the cell is read again")
        again = (await cloud.good("GET", "/servers/detail", version=69))["servers"]
        assert [one["id"] for one in again] == made
        assert {one["OS-EXT-STS:task_state"] for one in again if one["id"] == lost} == {"deleting"}
        assert (await cloud.ask("POST", f"/servers/{made[-1]}/action", {"os-stop": None})).status_code == 202
