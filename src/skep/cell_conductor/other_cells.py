"""What an action's owner reads of other cells, where the server's own has no host for it."""

from __future__ import annotations

from functools import partial

from skep.cell_conductor.parts import Parts
from skep.database.cell import agents
from skep.domain.builds import Explanation, NoValidHost

ELSEWHERE = NoValidHost(explanation=Explanation(considered=0), reason="the requested host is in another cell")
"""The decision about a host that is none of the cell's: its schedulers would speak of its other properties."""


async def is_elsewhere(parts: Parts, host: str | None) -> bool:
    """Tell whether a host that was asked for is none of this cell."""
    return host is not None and not await parts.database.read(partial(agents.has, host=host))


def not_asked(parts: Parts, why: str, *, allowed: bool, moves: bool) -> str:
    """Return why the cell has no host, with the rule that keeps the server in its cell, if one does.

    `allowed`: its caller passed the rule of the policy; `moves`: the server is on a host, and would be moved from it.
    """
    if not allowed:
        rule = "the request came without the leave of the policy `compute:servers:resize:cross_cell`"
    elif parts.max_cells == 1:
        rule = "`[scheduler] max_cells` is 1"
    elif moves and not parts.settings.moves_between_cells:
        rule = "`[conductor] moves_between_cells` is false"
    else:
        return why
    return f"{why}. Other cells were not asked: {rule}"
