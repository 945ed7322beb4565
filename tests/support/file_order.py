"""The order in which workers take up the files of a run.

Files of clouds of processes take longest and need the processor most: they are spread over the first part of a run, so
that few of them run at one time and none is waited for at its end. Files that wait much are mixed with files that
compute, so that the processor is used from the beginning to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

LONG_PART = 0.7
"""The part of a run in which long files begin."""

LONG = tuple(
    PurePath(folder)
    for folder in (
        "tests/crash",
        "tests/functional/neighbours",
        "tests/functional/operations",
        "tests/functional/processes",
        "tests/functional/upgrades",
    )
)
WAITING = (PurePath("tests/contract"), PurePath("tests/functional"))


def in_order(limits: Mapping[PurePath, float]) -> list[PurePath]:
    """Return files, each with its longest time limit, in the order in which they shall begin.

    Files of one kind stay as they are given; those of the kind that is long begin with the longest limit.
    """
    long = sorted((file for file in limits if _is_below(file, LONG)), key=lambda file: -limits[file])
    waiting = [file for file in limits if _is_below(file, WAITING) and file not in long]
    others = [file for file in limits if file not in long and file not in waiting]
    places = {
        file: (number + behind) / len(files) * part
        for files, part, behind in ((long, LONG_PART, 0.0), (waiting, 1.0, 0.5), (others, 1.0, 0.5))
        for number, file in enumerate(files)
    }
    return sorted(places, key=places.__getitem__)


def _is_below(file: PurePath, folders: tuple[PurePath, ...]) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)
