"""Disks of cold moves whose connection ends, or whose hosts are at work for long: no byte comes or is read twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from skep.compute import disk_fetching
from skep.compute.arrivals import ArrivingFile
from skep.compute.disk_wire import BLOCK
from skep.contracts.eventually import PATIENCE
from tests.support.disk_wire import CONTENT, HOLES, Source, Target, late

pytestmark = pytest.mark.usefixtures("soon")


async def test_a_target_that_was_killed_goes_on_from_what_it_has(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT, holes=HOLES)
    target.place.mkdir(parents=True)
    (target.place / "disk").write_bytes(CONTENT[:1000])
    (target.place / "holes").write_bytes(HOLES[: 5 * BLOCK])
    (target.place / "other").write_bytes(b"of no offer")
    sent: list[int] = []
    source.doors._pace.take = lambda number: _note(sent, number)  # type: ignore[method-assign]
    assert await target.fetch() == {"disk": CONTENT, "holes": HOLES}
    assert sum(sent) == len(CONTENT) - 1000 + 10 + BLOCK - 10, "the block of the ten bytes is one with zeros"
    assert sorted(path.name for path in target.place.iterdir()) == ["disk", "holes"]


async def _note(sent: list[int], number: int) -> None:
    sent.append(number)


def dies_once(source: Source, meanwhile: Callable[[], None] = lambda: None) -> list[asyncio.Task[None]]:
    """Have a source die before its fifth block, and begin again; return how it does, once it has."""
    sent: list[int] = []
    restarting: list[asyncio.Task[None]] = []

    async def die_once(number: int) -> None:
        sent.append(number)
        if len(sent) == 5:
            meanwhile()
            restarting.append(asyncio.create_task(source.restart()))
            await asyncio.Event().wait()

    source.doors._pace.take = die_once  # type: ignore[method-assign]
    return restarting


def during(
    monkeypatch: pytest.MonkeyPatch, name: str, then: Callable[[ArrivingFile], None] = lambda _file: None
) -> list[str]:
    """Have something happen at the end of a work on files; return the names of files that had it."""
    work: Callable[[ArrivingFile], None] = getattr(ArrivingFile, name)
    worked: list[str] = []

    def do(file: ArrivingFile) -> None:
        work(file)
        worked.append(file.path.name)
        then(file)

    monkeypatch.setattr(ArrivingFile, name, do)
    return worked


async def test_a_source_that_was_killed_in_the_midst_goes_on(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.keep(disk=CONTENT, holes=HOLES)
    restarting, read = dies_once(source), during(monkeypatch, "_open")
    assert await target.fetch() == {"disk": CONTENT, "holes": HOLES}
    assert len(restarting) == 1
    assert sorted(read) == ["disk", "holes"], "what came is not read again"


async def test_a_source_that_offers_others_meanwhile_gives_those(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT, other=b"of the first offer")
    restarting = dies_once(source, lambda: source.keep(disk=HOLES[:100], holes=HOLES))
    assert await target.fetch() == {"disk": HOLES[:100], "holes": HOLES}
    assert len(restarting) == 1
    assert sorted(path.name for path in target.place.iterdir()) == ["disk", "holes"]


async def cut(source: Source) -> None:
    """End all connections to a source."""
    ending = [connection for door in source.doors._doors.values() for connection in door.connections]
    for connection in ending:
        connection.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def from_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[ArrivingFile], None]:
    """Return how a thread that works on a file has this done in the loop, if there is anything in the file."""
    loop = asyncio.get_running_loop()

    def wait(file: ArrivingFile) -> None:
        if file.size:
            asyncio.run_coroutine_threadsafe(work(), loop).result(PATIENCE)

    return wait


async def test_a_source_need_not_wait_while_its_target_is_at_work(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of before 0.12.0 does so for five seconds only."""
    source.keep(disk=CONTENT, holes=HOLES)
    target.place.mkdir(parents=True)
    (target.place / "disk").write_bytes(CONTENT[:1000])
    cutting = from_thread(lambda: cut(source))
    read, stored = during(monkeypatch, "_open", cutting), during(monkeypatch, "_store", cutting)
    assert await target.fetch() == {"disk": CONTENT, "holes": HOLES}
    assert (sorted(read), sorted(stored)) == (["disk", "holes"], ["disk", "holes"])
    assert target.asking.asked == 1, "the door was still there"


async def test_what_a_target_reads_itself_is_no_silence(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_fetching, "UNHEARD_SECONDS", 1.0)
    source.keep(disk=CONTENT)
    target.place.mkdir(parents=True)
    (target.place / "disk").write_bytes(CONTENT[:1000])

    async def is_away() -> None:
        await late()
        await source.restart()

    read = during(monkeypatch, "_open", from_thread(is_away))
    assert await target.fetch() == {"disk": CONTENT}
    assert read == ["disk"]
    assert target.asking.asked == 2
