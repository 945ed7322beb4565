"""Where a crash test can end the process: generated from the tables of steps, so that no step is forgotten.

A point is a step or a write, and a way. Ways: `before` the effect, `after` it, and `lost`: what the step wrote is
committed, and nobody is told so. A call of the driver `libvirt` has `amid` as well: it is under way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from skep.domain.actions import ACTION_STEPS
from skep.domain.builds import STEPS, VOLUME_STEPS, Step
from skep.domain.moves import MOVE_STEPS

ALL_STEPS: Mapping[str, Step] = {**STEPS, **ACTION_STEPS, **MOVE_STEPS}
"""The steps of builds, those of actions on guests and those of moves."""
BESIDE_STEPS: Mapping[str, Step] = {**ALL_STEPS, **VOLUME_STEPS}
"""The same, and those of servers that have volumes."""

Way = Literal["before", "after", "lost", "amid"]
WAYS: tuple[Way, ...] = ("before", "after", "lost")
"""Those of steps."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process ends itself: at the `nth` time that it comes there after it was told."""

    step: str = ""
    """A name of `ALL_STEPS`; or empty, and `unit` is set."""
    unit: str = ""
    """A function that writes, as `module.function`; `before` is just before its COMMIT."""
    call: str = ""
    """Or a call of the driver `libvirt`, as `skep_lab.crash.calls` names it."""
    way: Way
    nth: int = 1

    def __str__(self) -> str:
        """Say which it is."""
        return f"{self.step or self.unit or self.call} {self.way}{f' {self.nth}' if self.nth > 1 else ''}"


WRITES = {"store": "skep.api.handlers.server_create._write_unless_kept"}
"""Steps of the API, which runs each as one write: the write is where they begin and end."""

_NO_COMMIT = "writes no database; that its effect is there and nobody heard of it is the way `after`"

UNREACHABLE: dict[tuple[str, Way], str] = {
    ("store", "after"): "the answer of the commit is the last thing before the 202: the same place as `lost`",
    ("select", "lost"): _NO_COMMIT,
    ("dispatch", "lost"): "the time of sending is committed before the step: the same place as `before`",
    ("claim", "lost"): _NO_COMMIT,
    ("connect", "lost"): _NO_COMMIT,
    ("prepare", "lost"): _NO_COMMIT,
    ("spawn", "lost"): _NO_COMMIT,
    ("destroy", "lost"): _NO_COMMIT,
    ("act", "lost"): _NO_COMMIT,
    **{(step.name, "lost"): _NO_COMMIT for step in MOVE_STEPS.values() if step.actor == "compute"},
}
"""Points that do not exist, and why."""


COMMITS = {"forget": 2, "move": 4}
"""Steps that commit more than once, in several databases: the answer of each is lost once."""


def points_of(step: str) -> tuple[Point, ...]:
    """Return the points of one step. Raises KeyError when there is no such step."""
    BESIDE_STEPS[step]
    ways = [way for way in WAYS if (step, way) not in UNREACHABLE]
    if step in WRITES:
        return tuple(Point(unit=WRITES[step], way=way) for way in ways)
    return tuple(
        Point(step=step, way=way, nth=nth)
        for way in ways
        for nth in range(1, (COMMITS.get(step, 1) if way == "lost" else 1) + 1)
    )


def drawn(dice: random.Random, steps: Iterable[str]) -> Point:
    """Draw one of these steps, a point of it, and at which of the first times it strikes.

    Raises KeyError when a step is none.
    """
    return msgspec.structs.replace(dice.choice(points_of(dice.choice(sorted(steps)))), nth=dice.randint(1, 4))
