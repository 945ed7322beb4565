"""What the metadata of a host's aggregates say, for filters that read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView


def words(value: str) -> list[str]:
    """Return the values of a list that is separated by commas."""
    return [word.strip() for word in value.split(",")]


def saying(hosts: HostView, key: Callable[[str], bool]) -> Iterator[tuple[Mask, list[str]]]:
    """Give the hosts of each aggregate whose metadata has such a key, with the values of all of them."""
    for number, aggregate in hosts.table.aggregates.items():
        said = [word for name, value in aggregate.metadata.items() if key(name) for word in words(value)]
        if said:
            yield hosts.in_aggregate(number), said


def said_anywhere(table: HostTable, key: Callable[[str], bool], word: str) -> bool:
    """Tell whether the metadata of some aggregate have the word under such a key."""
    return any(
        key(name) and word in words(value)
        for aggregate in table.aggregates.values()
        for name, value in aggregate.metadata.items()
    )


def least(hosts: HostView, key: str, default: int) -> Floats:
    """Return the least number that a host's aggregates have under a key.

    As in Nova the default holds where they have none, and where one of them has something that is no whole number.
    """
    numbers = np.full(len(hosts), np.inf)
    for number, aggregate in hosts.table.aggregates.items():
        if key in aggregate.metadata:
            inside = hosts.in_aggregate(number)
            numbers[inside] = np.minimum(numbers[inside], _whole(aggregate.metadata, key))
    # NaN, of what is no number, stays NaN whatever else is there.
    return np.where(np.isfinite(numbers), numbers, float(default))


def least_of(table: HostTable, row: int, key: str, default: int) -> float:
    """Return the same of one host."""
    told = (table.aggregates[number].metadata for number in table.aggregates_of_row(row))
    numbers = [_whole(metadata, key) for metadata in told if key in metadata]
    if not numbers or any(math.isnan(number) for number in numbers):
        return default
    return min(numbers)


def _whole(metadata: Mapping[str, str], key: str) -> float:
    try:
        return float(int(metadata[key]))
    except (ValueError, OverflowError):
        return np.nan
