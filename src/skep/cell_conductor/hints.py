"""Which passes a hint wakes: those that look at the rows it is about, so that no others cost anything."""

from __future__ import annotations

from collections.abc import Mapping

from skep.messages.to_cell_conductor import InstancesChanged, Work
from skep.reconciler.loop import Loop


class HintedLoops:
    """The loops of a cell conductor by the work that hints name."""

    def __init__(self, by_work: Mapping[Work, Loop], beside: tuple[Loop, ...]) -> None:
        """Take the loop for each kind of work, and those that no kind names."""
        self._by_work: dict[str, Loop] = {str(work): loop for work, loop in by_work.items()}
        self._all = (*by_work.values(), *beside)

    def concerned(self, hint: InstancesChanged) -> tuple[Loop, ...]:
        """Return the loops that a hint is about: all, where it names nothing, or work of a later release."""
        if not hint.work or any(work not in self._by_work for work in hint.work):
            return self._all
        return tuple(self._by_work[work] for work in dict.fromkeys(hint.work))
