"""The marks by which the hosts of a move between cells see whether they have one exchange."""

from __future__ import annotations

from pathlib import Path

from skep.compute.exchange import Exchange
from skep.domain.ids import new_uuid


def names_in(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir())


async def test_a_mark_says_nothing_of_the_host_that_comes_after(tmp_path: Path) -> None:
    """A target may have left its mark and been given up: the next one may have another exchange."""
    exchange, move = Exchange(tmp_path), new_uuid()
    await exchange.meet(move, 5)
    assert await exchange.meets(move, 5)
    assert not await exchange.meets(move, 6)
    assert not await exchange.meets(new_uuid(), 5)


async def test_a_move_that_is_over_leaves_no_marks(tmp_path: Path) -> None:
    exchange, move, other = Exchange(tmp_path), new_uuid(), new_uuid()
    for attempt in (5, 6):
        await exchange.meet(move, attempt)
    await exchange.meet(other, 5)
    await exchange.withdraw(move)
    assert names_in(tmp_path) == [f"{other}.5.seen"]
