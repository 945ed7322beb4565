"""What keeps a server in its cell, and what is said of it where that cell has no host."""

from __future__ import annotations

CROSS_CELL = "compute:servers:resize:cross_cell"
"""Nova's rule for who may have a server go to another cell."""


def kept_by(*, allowed: bool, max_cells: int, moves_between_cells: bool) -> str | None:
    """Return the rule that keeps a server in its cell; None: it may leave it.

    `allowed`: its caller passed `CROSS_CELL`.
    """
    if not allowed:
        return f"the request came without the leave of the policy `{CROSS_CELL}`"
    if max_cells == 1:
        return "`[scheduler] max_cells` is 1"
    if not moves_between_cells:
        return "`[conductor] moves_between_cells` is false"
    return None


def cells_not_asked(why: str, rule: str) -> str:
    """Say why its own cell has no host for a server, and by which rule the others were not asked."""
    return f"{why}. Other cells were not asked: {rule}"


def in_other_cells(why: str, there: str) -> str:
    """Say why its own cell has no host for a server, and why the others have none."""
    return f"{why.rstrip('.')}. In other cells: {there}"
