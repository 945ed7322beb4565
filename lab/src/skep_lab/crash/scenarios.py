"""What sets off each step, so that a cloud comes to the point where it dies, and what must be true afterwards."""

from __future__ import annotations

from skep_lab.crash.points import Point
from skep_lab.crash.walk import FAILING, MEMBERS, MOVING, Walk

_BUILDING = "store take select ports stage map settle dispatch claim may_build prepare may_spawn spawn built".split()
_FAILING = ("failed", "reschedule")
_DELETING = ("delete", "destroy", "deleted", "forget")


def build(walk: Walk, point: Point) -> None:
    """Die while servers are built; afterwards all of them run, or none when nobody was promised any."""
    _build(walk, point, "server")


def failing_build(walk: Walk, point: Point) -> None:
    """Die while a build fails on one host and goes to another; afterwards all run."""
    _build(walk, point, f"{FAILING}-server")


def moving_build(walk: Walk, point: Point) -> None:
    """Die while a build goes to another cell; afterwards all run."""
    _build(walk, point, f"{MOVING}-server")


def _build(walk: Walk, point: Point, name: str) -> None:
    walk.crash(point, lambda: walk.create(name))
    walk.recovered()
    statuses = walk.statuses()
    # What is stored is stored whole; without an answer it may not have been stored at all.
    stored = bool(walk.asked.created) or point.way != "before" or bool(point.step)
    assert sorted(statuses.values()) == ["ACTIVE"] * (MEMBERS if stored else 0), statuses


def delete(walk: Walk, point: Point) -> None:
    """Die while servers are deleted; afterwards they are gone."""
    walk.create("server")
    uuids = walk.wait_statuses("ACTIVE")

    def ask() -> None:
        for uuid in uuids:
            walk.delete(uuid)

    walk.crash(point, ask)
    walk.recovered()
    assert not set(walk.statuses()) & walk.asked.deleted


SCENARIOS = {
    **dict.fromkeys(_BUILDING, build),
    **dict.fromkeys(_FAILING, failing_build),
    "move": moving_build,
    **dict.fromkeys(_DELETING, delete),
}
"""Step -> what sets it off. A step that is missing here fails a test."""
