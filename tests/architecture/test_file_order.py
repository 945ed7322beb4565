"""Workers take up long files early and apart from each other, and files that wait beside files that compute."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path, PurePath

from tests.support.file_order import LONG, LONG_PART, WAITING, in_order

ROOT = Path(__file__).parents[2]


def files(folder: str, number: int, limit: float = 0.0) -> dict[PurePath, float]:
    return {PurePath(f"{folder}/test_{one}.py"): limit for one in range(number)}


def test_long_files_are_spread_and_none_is_among_the_last() -> None:
    order = in_order({**files("tests/unit", 60), **files("tests/functional/processes", 6, 300.0)})
    places = [place for place, file in enumerate(order) if file.parts[1] == "functional"]
    assert places[-1] < LONG_PART * len(order)
    assert min(later - place for place, later in pairwise(places)) > 5


def test_the_longest_limit_comes_first() -> None:
    order = in_order({**files("tests/functional/processes", 3), **files("tests/crash", 2, 600.0)})
    assert [file.parts[1] for file in order] == ["crash", "crash", "functional", "functional", "functional"]


def test_files_that_wait_stand_between_those_that_compute() -> None:
    order = in_order({**files("tests/unit", 10), **files("tests/functional/api", 10)})
    assert {(one.parts[1], other.parts[1]) for one, other in zip(order[::2], order[1::2], strict=True)} == {
        ("functional", "unit")
    }


def test_files_of_one_kind_stay_in_their_order() -> None:
    one_kind = files("tests/unit", 20)
    assert in_order(one_kind) == list(one_kind)


def test_the_folders_are_there() -> None:
    assert [str(folder) for folder in (*LONG, *WAITING) if not (ROOT / folder).is_dir()] == []
