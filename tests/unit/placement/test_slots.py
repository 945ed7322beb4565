"""Slots of kinds on hosts, and what hosts are worth by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.placement.slots import HostAmounts, ServerKind, Worth, Worthing
from tests.support.samples import examples

FLAT, PART = np.array([16.0, 64.0]), np.array([8.0])


def worth_of(*kinds: ServerKind, **how: Any) -> Worth:
    return Worth(kinds, Worthing(**how), mean_flat=FLAT, mean_part=PART)


def slots(worth: Worth, flat: tuple[int, int], parts: tuple[int, ...] = ()) -> list[int]:
    column = np.array(parts, dtype=np.int64).reshape(1, len(parts), 1)
    found: list[int] = worth.slots(np.array([flat], dtype=np.int64), column)[0].tolist()
    return found


def test_the_scarcest_amount_decides() -> None:
    worth = worth_of(ServerKind(flat=(2, 4)), ServerKind(flat=(1, 16)), ServerKind(flat=(0, 8)))
    assert slots(worth, (8, 64)) == [4, 4, 8]
    assert slots(worth, (-1, 64)) == [0, 0, 8]


def test_a_share_of_a_part_comes_from_one_part() -> None:
    worth = worth_of(ServerKind(flat=(0, 0), part=(3,)))
    assert slots(worth, (0, 0), (5, 5, 2)) == [2]


def test_several_parts_must_differ() -> None:
    worth = worth_of(ServerKind(flat=(0, 0), part=(1,), parts=2))
    assert slots(worth, (0, 0), (9, 1, 1)) == [2]
    assert slots(worth, (0, 0), (9,)) == [0]


def test_a_kind_that_asks_for_nothing_says_nothing() -> None:
    assert slots(worth_of(ServerKind(flat=(0, 0))), (8, 8)) == [0]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 3))
def test_rounds_are_those_of_taking_from_the_fullest_parts_first(left: list[int], parts: int, amount: int) -> None:
    remaining, rounds = sorted(left, reverse=True), 0
    while len([part for part in remaining[:parts] if part >= amount]) == parts:
        remaining = sorted([*(part - amount for part in remaining[:parts]), *remaining[parts:]], reverse=True)
        rounds += 1
    worth = worth_of(ServerKind(flat=(0, 0), part=(amount,), parts=parts))
    assert slots(worth, (0, 0), tuple(left)) == [rounds]


def hosts_of(*flat: tuple[int, int]) -> HostAmounts:
    column, none = np.array(flat, dtype=np.int64), np.zeros((len(flat), 1, 1), dtype=np.int64)
    return HostAmounts(column, np.full_like(column, 16), none, none)


@pytest.mark.parametrize("departures", [1, 4])
def test_more_room_is_never_worth_less(departures: int) -> None:
    worth = worth_of(ServerKind(flat=(1, 1), count=9), ServerKind(flat=(8, 8)), departures=departures)
    found = worth.of(hosts_of(*((free, free) for free in range(17)))).tolist()
    assert found == sorted(found)


def test_large_kinds_count_for_more_with_a_larger_exponent() -> None:
    kinds = ServerKind(flat=(1, 0), count=100), ServerKind(flat=(16, 0))
    whole, broken = hosts_of((16, 0), (15, 0)), [0, 1]
    losses = [
        float(np.diff(worth_of(*kinds, size_exponent=exponent).of(whole)[broken])[0]) for exponent in (0.0, 1.0, 2.0)
    ]
    assert losses == sorted(losses, reverse=True)


def test_departures_see_that_little_must_go_before_a_large_one_fits() -> None:
    kind = ServerKind(flat=(16, 0))
    almost, hardly = (14, 0), (2, 0)
    now = worth_of(kind).of(hosts_of(almost, hardly)).tolist()
    later = worth_of(kind, departures=10).of(hosts_of((16, 0), almost, hardly)).tolist()
    assert now == [0.0, 0.0]
    assert later[0] > later[1] >= later[2]
