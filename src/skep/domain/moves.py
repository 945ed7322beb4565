"""The way of a move: its steps on hosts. `docs/build.md` says of each what it writes and why it may be repeated."""

from __future__ import annotations

from skep.domain.builds import Step

_HOST_STEPS = (
    Step("move_prepare", "compute"),
    Step("move_put_aside", "compute"),
    Step("move_transfer", "compute"),
    Step("move_take_up", "compute"),
    Step("move_take_back", "compute"),
)

MOVE_STEPS: dict[str, Step] = {step.name: step for step in _HOST_STEPS}
"""The steps that hosts take of moves: the target holds room, the source puts its guest aside, the target receives the
disks and takes the guest up; where it comes to nothing the source takes its guest back."""
