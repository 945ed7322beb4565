from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.compute import journal as journal_module
from skep.compute.attempts import OrderVerdict
from skep.compute.compaction import Compaction
from skep.compute.entries import Acknowledged, BuildAccepted, BuildFailed, GuestBuilt, GuestDestroyed, TerminateAsked
from skep.compute.flusher import Flusher
from skep.compute.journal import Journal
from skep.domain.builds import failure
from skep.domain.errors import StorageUnavailable
from skep.domain.instances import PowerState
from tests.support.agents import CONTEXT, instance, uuid_of

RESOURCES = {"VCPU": 1}
ACCEPTED = BuildAccepted(at=1, instance=instance(1), attempt=1, resources=RESOURCES, context=CONTEXT)
ACCEPTED_LATER = BuildAccepted(at=4, instance=instance(2), attempt=1, resources=RESOURCES, context=CONTEXT)
BUILT = GuestBuilt(instance=uuid_of(1), attempt=1, resources=RESOURCES, launched_at=2, power_state=PowerState.RUNNING)


def opened(path: Path) -> Journal:
    made = Journal(path, Flusher())
    made.open()
    return made


def test_what_was_written_is_known_again(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal.jsonl")
    journal.record(ACCEPTED)
    journal.close()
    again = opened(tmp_path / "journal.jsonl")
    record = again.attempts.get(uuid_of(1))
    assert record is not None
    assert record.open[1].order == ACCEPTED
    assert record.verdict(1) is OrderVerdict.OPEN
    again.close()


@pytest.mark.parametrize("deleted", [True, False])
def test_it_is_remembered_why_something_was_destroyed(tmp_path: Path, deleted: bool) -> None:
    """Also after compactions: a database that forgets the delete can ask."""
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.record(ACCEPTED)
    journal.record(TerminateAsked(instance=uuid_of(1), attempt=1, deleted=deleted))
    journal.record(GuestDestroyed(at=3, instance=uuid_of(1), attempt=1))
    journal.close()
    for _ in range(2):
        again = opened(path)
        record = again.attempts.get(uuid_of(1))
        assert record is not None
        assert record.deleted_up_to == int(deleted)
        again.close()


def test_opening_compacts(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    for entry in (ACCEPTED, BUILT, BUILT, Acknowledged(instance=uuid_of(1), outcome="built", attempt=1)):
        journal.record(entry)
    journal.close()
    before = path.stat().st_size
    opened(path).close()
    assert path.stat().st_size < before
    again = opened(path)
    record = again.attempts.get(uuid_of(1))
    assert record is not None
    assert (record.open[1].built, record.open[1].acknowledged) == (BUILT, True)
    again.close()


def test_a_running_journal_is_compacted_when_it_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 10_000)
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    for attempt in range(1, 200):
        journal.record(TerminateAsked(instance=uuid_of(1), attempt=attempt))
        journal.record(GuestDestroyed(at=attempt, instance=uuid_of(1), attempt=attempt))
        assert path.stat().st_size < 12_000
    journal.close()
    again = opened(path)
    record = again.attempts.get(uuid_of(1))
    assert record is not None
    assert record.destroyed_up_to == 199
    again.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[str]]]:
    """Compactions that wait, in their thread, until they may write; and the names of these threads."""
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 10_000)
    may_write, threads = threading.Event(), []
    write = Compaction.write

    def waiting(compaction: Compaction) -> None:
        threads.append(threading.current_thread().name)
        assert may_write.wait(20)
        write(compaction)

    monkeypatch.setattr(Compaction, "write", waiting)
    yield may_write, threads
    may_write.set()


def fill(journal: Journal, upto: int, since: int = 1) -> None:
    for attempt in range(since, upto):
        journal.record(TerminateAsked(instance=uuid_of(1), attempt=attempt))
        journal.record(GuestDestroyed(at=attempt, instance=uuid_of(1), attempt=attempt))


async def test_a_compaction_holds_up_nobody_and_loses_nothing(
    tmp_path: Path, held: tuple[threading.Event, list[str]]
) -> None:
    may_write, threads = held
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    fill(journal, 200)
    while not threads:
        await asyncio.to_thread(lambda: None)
    grown = path.stat().st_size
    fill(journal, 300, since=200)
    await journal.synced()
    assert path.stat().st_size > grown, "it is written on while it is being compacted"
    grown = path.stat().st_size
    may_write.set()
    await journal.compacted()
    assert path.stat().st_size < grown
    fill(journal, 320, since=300)
    await journal.synced()
    assert threading.current_thread().name not in threads
    known = journal.attempts.records
    journal.close()
    again = opened(path)
    assert again.attempts.records == known
    again.close()


async def test_a_journal_that_is_closed_in_mid_compaction_is_whole(
    tmp_path: Path, held: tuple[threading.Event, list[str]]
) -> None:
    may_write, threads = held
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    fill(journal, 100)
    while not threads:
        await asyncio.to_thread(lambda: None)
    journal.close()
    may_write.set()
    await journal.compacted()
    again = opened(path)
    assert again.attempts.records == journal.attempts.records
    again.close()


async def test_a_compaction_for_which_there_is_no_room_leaves_the_journal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_compaction: Compaction) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 10_000)
    monkeypatch.setattr(Compaction, "write", full)
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    fill(journal, 100)
    await journal.compacted()
    fill(journal, 150, since=100)
    await journal.synced()
    journal.close()
    monkeypatch.undo()
    again = opened(path)
    assert again.attempts.records == journal.attempts.records
    again.close()


def test_a_torn_end_is_no_part_of_the_next_entry_where_a_full_disk_puts_the_compaction_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.record(ACCEPTED)
    journal.close()
    with path.open("ab") as torn:
        torn.write(b'{"type":"guest_built","inst')

    def full(_compaction: Compaction, _lines: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Compaction, "_put", full)
    journal = opened(path)
    journal.note(BUILT)
    journal.record(ACCEPTED_LATER)
    journal.close()
    monkeypatch.undo()
    again = opened(path)
    assert again.attempts.records == journal.attempts.records
    assert again.attempts.records.keys() == {uuid_of(1), uuid_of(2)}
    again.close()


def test_what_is_gone_is_remembered_for_a_while(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", Flusher(), remembered=2)
    journal.open()
    for number in (1, 2, 3):
        failed = BuildFailed(at=0, instance=uuid_of(number), attempt=1, failure=failure("X", "x"))
        journal.record(failed)
        journal.record(Acknowledged(instance=uuid_of(number), outcome="failed", attempt=1))
    assert [uuid_of(number) in journal.attempts.records for number in (1, 2, 3)] == [False, True, True]
    assert not journal.attempts.ended(uuid_of(1), 1)
    assert journal.attempts.ended(uuid_of(2), 1)
    journal.close()


def test_a_closed_journal_stores_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal.jsonl")
    journal.close()
    with pytest.raises(StorageUnavailable):
        journal.record(ACCEPTED)
    assert journal.attempts.get(uuid_of(1)) is None
    journal.note(BUILT)
    assert journal.attempts.get(uuid_of(1)) is not None


@pytest.mark.parametrize("then", ["an entry", "catching up", "closing"])
def test_what_a_full_disk_did_not_take_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Otherwise its record would be open again after the next restart, and for ever."""

    def no_space(_file: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.record(ACCEPTED)
    journal.record(BUILT)
    with monkeypatch.context() as full:
        full.setattr(os, "write", no_space)
        journal.note(TerminateAsked(instance=uuid_of(1), attempt=2))
        journal.note(GuestDestroyed(at=3, instance=uuid_of(1), attempt=2))
        with pytest.raises(StorageUnavailable):
            journal.record(ACCEPTED_LATER)
        journal.catch_up()
    if then == "an entry":
        journal.record(ACCEPTED_LATER)
    elif then == "catching up":
        journal.catch_up()
        os.close(journal._file)  # as the death of the process does
    if then != "catching up":
        journal.close()
    again = opened(path)
    record = again.attempts.get(uuid_of(1))
    assert record is not None
    assert (record.open, record.destroyed_up_to) == ({}, 2)
    assert (again.attempts.get(uuid_of(2)) is not None) == (then == "an entry")
    again.close()


async def test_many_waiters_share_one_sync() -> None:
    class Counted:
        syncs = 0

        def sync(self) -> None:
            self.syncs += 1

    flusher, files = Flusher(), [Counted() for _ in range(10)]
    await asyncio.gather(*(flusher.sync(file) for file in files for _ in range(20)))
    assert {file.syncs for file in files} == {1}


async def test_a_disk_that_cannot_store_fails_only_its_own_waiters() -> None:
    class Broken:
        def sync(self) -> None:
            raise OSError(28, "No space left on device")

    class Sound:
        def sync(self) -> None:
            return

    flusher = Flusher()
    broken, sound = await asyncio.gather(flusher.sync(Broken()), flusher.sync(Sound()), return_exceptions=True)
    assert isinstance(broken, StorageUnavailable)
    assert "No space left" in str(broken)
    assert sound is None


async def test_a_waiter_that_goes_away_leaves_the_others_waiting() -> None:
    class File:
        def sync(self) -> None:
            return

    flusher, file = Flusher(), File()
    first = asyncio.create_task(flusher.sync(file))
    second = asyncio.create_task(flusher.sync(file))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
