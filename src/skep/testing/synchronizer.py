"""The contract of a synchronizer's backend as tests: a class to inherit, with a fixture `backend` of one's own.

    class TestMyBackend(BackendContract):
        @pytest.fixture
        async def backend(self): ...

`BackendModel` is the same contract as a state machine for hypothesis: operations in any order against a model.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from skep.synchronizer.base import (
    Backend,
    Changes,
    Cursor,
    CursorTooOld,
    Key,
    Published,
    Record,
    Refusal,
    Write,
)

LONG = 30.0
"""Seconds that a wait for a change may take at most; it ends when the change comes."""


def key(name: str, namespace: str = "compute") -> Key:
    """Return a key for a test."""
    return Key(namespace, name)


def write(name: str, expected: int, body: bytes = b"x") -> Write:
    """Return a write for a test."""
    return Write(key=key(name), expected=expected, body=body)


async def changes_after(backend: Backend, cursor: Cursor, *, wait: float = 0.0) -> Changes:
    """Read changes where the cursor must be good."""
    changes = await backend.changes(cursor, wait=wait)
    assert isinstance(changes, Changes)
    return changes


class BackendContract:
    """What every backend must do."""

    async def test_an_empty_backend_has_an_epoch_and_no_records(self, backend: Backend) -> None:
        snapshot = await backend.snapshot()
        assert snapshot.records == ()
        assert snapshot.epoch
        assert snapshot.epoch == await backend.epoch()

    async def test_the_epoch_stays_while_records_change(self, backend: Backend) -> None:
        before = await backend.epoch()
        await backend.publish((write("a", 0),))
        assert await backend.epoch() == before

    async def test_a_record_is_made_with_generation_1_and_each_write_adds_one(self, backend: Backend) -> None:
        assert await backend.publish((write("a", 0, b"one"),)) == (Published(1),)
        assert await backend.publish((write("a", 1, b"two"),)) == (Published(2),)
        assert (await backend.snapshot()).records == (Record(key=key("a"), generation=2, body=b"two"),)

    async def test_a_write_that_expects_another_generation_is_refused_with_the_fresh_record(
        self, backend: Backend
    ) -> None:
        await backend.publish((write("a", 0, b"one"),))
        held = Record(key=key("a"), generation=1, body=b"one")
        assert await backend.publish((write("a", 0, b"other"), write("a", 2, b"other"))) == (
            Refusal(held),
            Refusal(held),
        )
        assert (await backend.snapshot()).records == (held,)

    async def test_a_write_to_what_is_not_there_is_refused_with_nothing(self, backend: Backend) -> None:
        assert await backend.publish((write("a", 3),)) == (Refusal(None),)

    async def test_one_refusal_does_not_touch_the_other_writes(self, backend: Backend) -> None:
        await backend.publish((write("b", 0),))
        outcomes = await backend.publish((write("a", 0), write("b", 0), write("c", 0)))
        assert [type(outcome) for outcome in outcomes] == [Published, Refusal, Published]

    async def test_namespaces_are_apart(self, backend: Backend) -> None:
        one, other = key("a", "compute"), key("a", "groups")
        await backend.publish((Write(key=one, expected=0, body=b"1"), Write(key=other, expected=0, body=b"2")))
        bodies = {record.key: record.body for record in (await backend.snapshot()).records}
        assert bodies == {one: b"1", other: b"2"}

    async def test_a_removed_record_is_not_in_the_snapshot_and_its_generation_goes_on(self, backend: Backend) -> None:
        await backend.publish((write("a", 0),))
        cursor = (await backend.snapshot()).cursor
        assert await backend.publish((write("a", 1, b""),)) == (Published(2),)
        assert (await backend.snapshot()).records == ()
        changes = await changes_after(backend, cursor)
        assert changes.records == (Record(key=key("a"), generation=2, body=b""),)
        assert await backend.publish((write("a", 0),)) == (Refusal(Record(key=key("a"), generation=2, body=b"")),)
        assert await backend.publish((write("a", 2),)) == (Published(3),)

    async def test_changes_tell_what_came_after_the_cursor_once(self, backend: Backend) -> None:
        await backend.publish((write("a", 0),))
        cursor = (await backend.snapshot()).cursor
        assert (await changes_after(backend, cursor)).records == ()
        await backend.publish((write("b", 0, b"1"),))
        first = await changes_after(backend, cursor)
        assert [record.key.name for record in first.records] == ["b"]
        await backend.publish((write("a", 1, b"2"),))
        second = await changes_after(backend, first.cursor)
        assert [(record.key.name, record.body) for record in second.records] == [("a", b"2")]
        assert (await changes_after(backend, second.cursor)).records == ()

    async def test_of_several_changes_of_one_record_the_latest_is_told(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        for generation in range(5):
            await backend.publish((write("a", generation, b"%d" % generation),))
        records = (await changes_after(backend, cursor)).records
        assert records[-1] == Record(key=key("a"), generation=5, body=b"4")

    async def test_waiting_readers_are_all_woken_by_a_change(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        readers = [asyncio.create_task(changes_after(backend, cursor, wait=LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        await backend.publish((write("a", 0),))
        for changes in await asyncio.gather(*readers):
            assert [record.key.name for record in changes.records] == ["a"]

    async def test_waiting_ends_without_a_change(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        assert (await changes_after(backend, cursor, wait=0.01)).records == ()

    async def test_a_cursor_of_another_life_asks_for_a_snapshot(self, backend: Backend) -> None:
        assert await backend.changes(Cursor("nonsense")) == CursorTooOld()
        assert await backend.changes(Cursor("")) == CursorTooOld()

    async def test_trimming_never_makes_a_silent_gap(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        for number in range(20):
            await backend.publish((write(f"n{number}", 0),))
        latest = (await backend.snapshot()).cursor
        await backend.trim()
        changes = await backend.changes(cursor)
        assert isinstance(changes, CursorTooOld) or len(changes.records) == 20
        assert len((await backend.snapshot()).records) == 20
        assert isinstance(await backend.changes(latest), Changes)

    async def test_of_writers_that_race_one_wins_each_generation(self, backend: Backend) -> None:
        async def count(times: int) -> None:
            done = 0
            expected = 0
            while done < times:
                (outcome,) = await backend.publish((write("a", expected),))
                if isinstance(outcome, Published):
                    done, expected = done + 1, outcome.generation
                else:
                    assert outcome.record is not None
                    expected = outcome.record.generation

        await asyncio.gather(*(count(10) for _ in range(4)))
        assert [record.generation for record in (await backend.snapshot()).records] == [40]


_names = st.sampled_from(["a", "b", "c"])


class BackendModel(RuleBasedStateMachine):
    """Any order of operations, against a model that holds the truth."""

    @abstractmethod
    def make(self) -> Backend:
        """Return an empty backend; the one thing that a subclass must say."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """Start with an empty backend and one reader."""
        self.runner = asyncio.Runner()
        self.backend = self.make()
        self.truth: dict[Key, Record] = {}
        self.reader: dict[Key, Record] = {}
        self.cursor = self._run(self.backend.snapshot()).cursor

    def teardown(self) -> None:
        """Close the loop."""
        if hasattr(self, "runner"):
            self.runner.close()

    def _run(self, operation: Any) -> Any:
        return self.runner.run(operation)

    @rule(name=_names, offset=st.sampled_from([0, 0, 0, -1, 1]), body=st.sampled_from([b"", b"1", b"2"]))
    def publish(self, name: str, offset: int, body: bytes) -> None:
        """A write is taken exactly when it expects the truth."""
        held = self.truth.get(key(name))
        expected = max(0, (held.generation if held else 0) + offset)
        (outcome,) = self._run(self.backend.publish((write(name, expected, body),)))
        if expected == (held.generation if held else 0):
            assert outcome == Published(expected + 1)
            self.truth[key(name)] = Record(key=key(name), generation=expected + 1, body=body)
        else:
            assert outcome == Refusal(held)

    @rule()
    def trim(self) -> None:
        """Forgetting changes loses no record."""
        self._run(self.backend.trim())

    @rule()
    def read(self) -> None:
        """Whoever follows the changes, or is told to begin again, knows the truth."""
        changes = self._run(self.backend.changes(self.cursor))
        if isinstance(changes, CursorTooOld):
            snapshot = self._run(self.backend.snapshot())
            self.reader = {record.key: record for record in snapshot.records}
            self.cursor = snapshot.cursor
        else:
            self.reader.update({record.key: record for record in changes.records})
            self.cursor = changes.cursor
        living = {name: record for name, record in self.truth.items() if record.body}
        assert {name: record for name, record in self.reader.items() if record.body} == living

    @rule()
    def look(self) -> None:
        """A snapshot is the truth."""
        records = self._run(self.backend.snapshot()).records
        assert {record.key: record for record in records} == {
            name: record for name, record in self.truth.items() if record.body
        }
