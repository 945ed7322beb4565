"""A hint wakes the loops that look at the rows it is about, and no others."""

from __future__ import annotations

from typing import get_args

from skep.cell_conductor.hints import HintedLoops
from skep.messages.to_cell_conductor import InstancesChanged, Work
from skep.reconciler.loop import Loop

KINDS: tuple[Work, ...] = get_args(Work)


async def _pass() -> bool:
    return False


LOOPS = {work: Loop(work, _pass, every=1.0) for work in KINDS}
BESIDE = Loop("beside", _pass, every=1.0)
HINTS = HintedLoops(LOOPS, (BESIDE,))


def test_a_hint_wakes_the_loop_of_its_work_alone() -> None:
    for work, loop in LOOPS.items():
        assert HINTS.concerned(InstancesChanged(work=(work,))) == (loop,)
    assert HINTS.concerned(InstancesChanged(work=("steps", "deletes", "steps"))) == (LOOPS["steps"], LOOPS["deletes"])


def test_a_hint_of_another_release_wakes_all() -> None:
    assert HINTS.concerned(InstancesChanged()) == (*LOOPS.values(), BESIDE)
    assert HINTS.concerned(InstancesChanged(work=("builds", "a later kind"))) == (*LOOPS.values(), BESIDE)
