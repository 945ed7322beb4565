"""Lists for which many rows are looked at: read in pieces, others come in between, and no more is kept than a page."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.api.handlers import server_filters, server_list
from skep.api.routes import ROUTES
from skep.contracts.eventually import eventually
from skep.database.cell import listing
from skep.database.engine import Database, Unit
from skep.domain.instances import Instance
from skep_lab.compute_api.api import PROJECT
from skep_lab.compute_api.hanging import HangingDatabase
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test
from tests.functional.servers.test_lists import ids, remove

SERVERS, LIVING = 23, 17
"""Two of them wait for a cell, and two are staged in one."""
PIECE = 4
SORTED = ("uuid", "display_name", "created_at&sort_dir=asc", "vm_state&sort_key=display_name&sort_dir=asc")


class CountedReads(Database):
    """Stands before a real database and counts what is read there at once."""

    def __init__(self, real: Database) -> None:
        self.real, self.name = real, real.name
        self.now = self.most = self.reads = 0

    async def read(self, unit: Unit[Any], *, within: float | None = None) -> Any:
        self.now += 1
        self.reads += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            return await self.real.read(unit, within=within)
        finally:
            self.now -= 1


class ReadsByPermit(CountedReads):
    """Each read waits for a permit."""

    def __init__(self, real: Database) -> None:
        super().__init__(real)
        self.permits = asyncio.Semaphore(0)

    async def read(self, unit: Unit[Any], *, within: float | None = None) -> Any:
        await self.permits.acquire()
        return await super().read(unit, within=within)


def standing_before(cloud: ServersUnderTest, database: Database, second: Database | None = None) -> ServersUnderTest:
    """Return the cloud with another database of its first cell, and of its second."""
    cells = {**cloud.services.cells, CELL1: database}
    if second is not None:
        cells[CELL2] = second
    return ServersUnderTest(dataclasses.replace(cloud.services, cells=cells), cloud.told)


@pytest.fixture
async def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServersUnderTest]:
    """Make servers in two cells, some of which are deleted, waiting or staged and mapped; lists are read in pieces."""
    async with servers_under_test(tmp_path, routes=ROUTES) as cloud:
        quotas = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
        await cloud.good("PUT", f"/os-quota-sets/{PROJECT}", quotas, token="admin")
        for number in range(SERVERS):
            await _make(cloud, number)
        monkeypatch.setattr(listing, "CHUNK", PIECE)
        yield cloud


async def _make(cloud: ServersUnderTest, number: int) -> None:
    uuid = await cloud.create(f"s{(7 * number) % SERVERS:02}")
    if number % 10 == 3:
        return
    if number % 10 == 5:
        await cloud.map(await cloud.stage(uuid, CELL1), CELL1)
        return
    cell = CELL2 if number % 10 == 7 else CELL1
    await cloud.build(uuid, cell)
    if number % 3 == 0:
        await remove(cloud, uuid, cell)


@pytest.mark.parametrize("since", ["", "&changes-since=1970-01-01T00:00:00Z"])
async def test_pages_of_pieces_are_those_of_the_whole(
    many: ServersUnderTest, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    async def pages(query: str) -> list[list[str]]:
        found = [await ids(many, f"?{query}")]
        while found[-1]:
            found.append(await ids(many, f"?{query}&marker={found[-1][-1]}"))
        return found

    queries = [f"sort_key={key}&limit={size}{since}" for key in SORTED for size in (3, 100)]
    queries += [f"name=s.[1357]&limit={size}{since}" for size in (1, 3, 100)]
    in_pieces = {query: await pages(query) for query in queries}
    monkeypatch.setattr(listing, "CHUNK", 500)
    assert in_pieces == {query: await pages(query) for query in queries}
    for key in SORTED:
        listed = {uuid for page in in_pieces[f"sort_key={key}&limit=3{since}"] for uuid in page}
        assert len(listed) == (SERVERS if since else LIVING)


async def test_no_more_is_kept_than_a_page_and_a_piece(many: ServersUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def ordered(found: list[Instance], order: tuple[tuple[str, str], ...]) -> list[Instance]:
        sizes.append(len(found))
        return server_filters.ordered(found, order)

    monkeypatch.setattr(server_list, "ordered", ordered)
    first, second = await ids(many, "?sort_key=uuid&sort_dir=asc&limit=2&changes-since=1970-01-01T00:00:00Z")
    assert first < second
    waiting, staged, cells = 2, 2, 2
    assert len(sizes) > 6
    assert max(sizes) <= cells * (2 + PIECE) + waiting + staged


async def test_pieces_of_long_lists_take_turns_and_let_others_read(many: ServersUnderTest) -> None:
    counted = CountedReads(many.services.cells[CELL1])
    other = standing_before(many, counted)
    lists = ["?sort_key=uuid", "?sort_key=display_name", "?name=zzz", "?name=s1&limit=1"]
    await asyncio.gather(
        *(other.good("GET", f"/servers{query}", token=token) for query in lists for token in ("member", "other"))
    )
    assert counted.reads > 2 * len(lists)
    assert counted.most == 1
    counted.reads = 0
    await asyncio.gather(*(other.good("GET", "/servers") for _ in lists))
    assert (counted.reads, counted.most > 1) == (len(lists), True)
    await other.client.aclose()


async def test_a_project_has_one_long_list_under_way_and_others_wait_for_a_piece_of_it(many: ServersUnderTest) -> None:
    first, second = ReadsByPermit(many.services.cells[CELL1]), CountedReads(many.services.cells[CELL2])
    cloud = standing_before(many, first, second)

    async def read_beside(reads: int) -> None:
        async def is_read() -> bool:
            return second.reads >= reads

        await eventually(is_read, "the second cell is read, so the list waits for the first one")

    lists = [asyncio.create_task(cloud.good("GET", "/servers?sort_key=uuid")) for _ in range(3)]
    await read_beside(1)
    assert len((await many.good("GET", "/servers"))["servers"]) == LIVING
    others = asyncio.create_task(cloud.good("GET", "/servers?name=zzz", token="other"))
    await read_beside(2)
    assert second.reads == 2, "one list of each project"
    for _ in range(2):
        first.permits.release()
    assert await others == {"servers": []}
    assert first.reads == 2, "a piece of each"
    assert not any(one.done() for one in lists)
    for _ in range(100):
        first.permits.release()
    assert len({str(one) for one in await asyncio.gather(*lists)}) == 1
    assert not many.services.long_lists
    await cloud.client.aclose()


async def test_a_page_does_not_wait_for_the_turn_of_long_lists(many: ServersUnderTest) -> None:
    slow = HangingDatabase(many.services.cells[CELL1])
    other = standing_before(many, slow)
    long = asyncio.create_task(other.good("GET", "/servers?sort_key=uuid"))
    await slow.reached.wait()
    waiting = asyncio.create_task(many.good("GET", "/servers?sort_key=uuid"))
    assert len((await many.good("GET", "/servers"))["servers"]) == LIVING
    assert not waiting.done()
    slow.go_on.set()
    assert await long == await waiting

    async def answers() -> bool:
        return slow.reading.answers

    await eventually(answers, "it is read again")
    await other.client.aclose()


async def test_a_list_for_which_too_much_is_looked_at_is_refused(
    many: ServersUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_list, "MOST_LOOKED_AT", 2 * PIECE)
    for query in ("?sort_key=uuid", "?name=zzz", "?name=zzz&limit=1&changes-since=1970-01-01T00:00:00Z"):
        for path in ("/servers", "/servers/detail"):
            status, said = await many.bad("GET", f"{path}{query}")
            assert (status, said.partition(" of one cell")[0]) == (400, "More than 8 servers")
    assert len(await ids(many)) == LIVING
    assert len(await ids(many, "?name=s&limit=2")) == 2
