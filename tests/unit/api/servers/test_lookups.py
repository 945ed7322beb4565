"""What is remembered for a moment: as long as it lasts, and not when it was forgotten while it was read."""

from __future__ import annotations

from skep.api.lookups import RecentReads


class Source:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.time = 0.0

    async def read(self) -> int:
        self.reads += 1
        return self.reads


async def test_a_thing_is_remembered_for_its_time() -> None:
    source = Source()
    moment: RecentReads[int] = RecentReads(1.0, lambda: source.time)
    assert [await moment.get("a", source.read) for _ in range(3)] == [1, 1, 1]
    assert await moment.get("b", source.read) == 2
    source.time = 2.0
    assert await moment.get("a", source.read) == 3
    moment.forget()
    assert await moment.get("a", source.read) == 4


async def test_what_changed_while_it_was_read_is_read_again() -> None:
    source = Source()
    moment: RecentReads[int] = RecentReads(1.0, lambda: source.time)

    async def read() -> int:
        moment.forget()
        return await source.read()

    assert await moment.get("a", read) == 1
    assert await moment.get("a", source.read) == 2


async def test_that_there_is_none_is_not_remembered() -> None:
    source = Source()
    moment: RecentReads[int] = RecentReads(1.0, lambda: source.time)

    async def nothing() -> int | None:
        return None

    assert await moment.get("a", nothing) is None
    assert await moment.get("a", source.read) == 1
