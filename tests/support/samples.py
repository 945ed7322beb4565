"""Walks and matrices in tests: a sample of their cases in `make test`, all of them in `make test-everywhere`.

A sample is drawn from `SAMPLE_SEED`, which the end of a run prints; the same number draws the same cases again.
Searches by hypothesis draw all their examples in `make test`, a quarter of them in `make check`.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SOURCES = Path(__file__).parents[2]
MOST = 1_000_000
"""Seeds are smaller."""

EVERYWHERE = "EVERYWHERE"
"""This variable of the environment has every case run."""
SEED = "SAMPLE_SEED"
QUICK = "QUICK"
"""With this variable of the environment a search draws a quarter of its examples, and no test starts a server."""
CHECKED = "CHECKED"
"""With this variable of the environment `make check` has just passed here: what it runs whole is left out."""


def everywhere(walk: str = "", environ: Mapping[str, str] = os.environ) -> bool:
    """Whether all cases are wanted: of everything, or of this walk alone (`ACCESS`: by `ACCESS_EVERYWHERE=1`)."""
    return bool(environ.get(EVERYWHERE) or environ.get(f"{walk}_{EVERYWHERE}"))


def examples(number: int, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many examples a search draws that draws `number` of them in `make test`."""
    return -(-number // 4) if quick(environ) else number


def quick(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is `make check`, which is to take little time."""
    return bool(environ.get(QUICK))


def checked(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `make check` has just passed in these sources."""
    return bool(environ.get(CHECKED))


def seed(walk: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Return the seed of this run, or that of this walk (`GOING_BACK`: `GOING_BACK_SEED`)."""
    return environ.get(f"{walk}_SEED") or environ.get(SEED) or "0"


def draw_seed(*, repeatable: bool = False) -> None:
    """Draw the seed of this run, unless there is one. Processes that are started later have the same.

    `repeatable`: each run of these sources has the same seed, if they are in a git repository.
    """
    drawn = _of_sources() if repeatable else None
    os.environ.setdefault(SEED, str(drawn or random.SystemRandom().randrange(1, MOST)))


def _of_sources() -> int | None:
    """Return a number that changes with the sources; None where git cannot say what they are."""
    asked = ["git", "-C", str(SOURCES), "rev-parse", "--quiet", "--verify", "HEAD^{tree}"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(said, 16) % MOST


def sample(cases: Sequence[T], size: int, *of: str) -> list[T]:
    """Return so many cases in their order, or all if there are no more; `of` says what they are cases of."""
    if len(cases) <= size:
        return list(cases)
    numbers = random.Random(" ".join(of)).sample(range(len(cases)), size)
    return [cases[number] for number in sorted(numbers)]
