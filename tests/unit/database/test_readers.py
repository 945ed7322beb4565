"""Threads that read: each unit is done once or, where nobody waits for it, never; whoever waits is answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from skep.contracts.eventually import eventually
from skep.database.readers import Readers
from skep.domain.errors import StorageUnavailable


class Held:
    """Something to do that waits until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(60)
        return threading.current_thread().name

    async def has_begun(self) -> bool:
        return self.begun.is_set()


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers("books", 1)
    yield made
    made.stop()


async def test_what_is_done_is_answered_and_what_is_raised_is_raised(readers: Readers) -> None:
    assert await readers.submit(lambda: 7) == 7

    def fail() -> None:
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        await readers.submit(fail)
    assert await readers.submit(lambda: threading.current_thread().name) == "books-read_0"


async def test_as_many_at_once_as_there_are_threads() -> None:
    readers = Readers("books", 2)
    first, second = Held(), Held()
    waiting = [readers.submit(first), readers.submit(second)]
    await eventually(first.has_begun, "the first has begun")
    await eventually(second.has_begun, "the second has begun")
    first.go_on.set()
    second.go_on.set()
    assert len(set(await asyncio.gather(*waiting))) == 2
    readers.stop()


async def test_what_is_cancelled_before_it_began_is_never_done(readers: Readers) -> None:
    held, done = Held(), []
    first = readers.submit(held)
    await eventually(held.has_begun, "the thread is busy")
    cancelled = readers.submit(lambda: done.append("cancelled"))
    cancelled.cancel()
    kept = readers.submit(lambda: done.append("kept"))
    held.go_on.set()
    await first
    await kept
    assert done == ["kept"]


async def test_the_answer_to_whoever_left_meanwhile_is_dropped(readers: Readers) -> None:
    held = Held()
    first = readers.submit(held)
    await eventually(held.has_begun, "it has begun")
    first.cancel()
    held.go_on.set()
    assert await readers.submit(lambda: "next") == "next"


async def test_what_waits_at_the_end_is_told_so() -> None:
    readers, held = Readers("books", 1), Held()
    first = readers.submit(held)
    await eventually(held.has_begun, "it has begun")
    waiting = readers.submit(lambda: "never")
    stopping = asyncio.create_task(asyncio.to_thread(readers.stop))

    async def takes_nothing() -> bool:
        try:
            readers.submit(lambda: None).cancel()
        except StorageUnavailable:
            return True
        return False

    await eventually(takes_nothing, "it takes nothing any more")
    held.go_on.set()
    assert await first == "books-read_0"
    await stopping
    with pytest.raises(StorageUnavailable, match="books is closed"):
        await waiting
    with pytest.raises(StorageUnavailable, match="books is closed"):
        readers.submit(lambda: "later")
