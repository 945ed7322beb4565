from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.compute import journal as journal_module
from skep.compute.attempts import Verdict
from skep.compute.entries import Acknowledged, BuildAccepted, BuildFailed, GuestBuilt, GuestDestroyed, TerminateAsked
from skep.compute.flusher import Flusher
from skep.compute.journal import Journal
from skep.domain.builds import failure
from skep.domain.errors import StorageUnavailable
from skep.domain.instances import PowerState
from skep.testing.agents import CONTEXT, instance, uuid_of

RESOURCES = {"VCPU": 1}
ACCEPTED = BuildAccepted(at=1, instance=instance(1), attempt=1, resources=RESOURCES, context=CONTEXT)
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
    assert record.verdict(1) is Verdict.OPEN
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
