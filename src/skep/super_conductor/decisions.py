"""What a scheduler's decision means while cells are left out of it."""

from __future__ import annotations

from skep.domain.builds import Decision, NotReady, NoValidHost


def not_final(decision: Decision) -> Decision:
    """Make "no valid host" wait while a cell is left out that could not store a moment ago: it may have one."""
    if isinstance(decision, NoValidHost):
        return NotReady(reason=f"a cell cannot store now; without it: {decision.message()}")
    return decision
