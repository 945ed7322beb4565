"""What an action's owner reads of other cells, where the server's own has no host for it."""

from __future__ import annotations

from functools import partial

from skep.cell_conductor.parts import Parts
from skep.database.cell import agents
from skep.domain.builds import Explanation, NoValidHost
from skep.domain.leaving import cells_not_asked, kept_by

ELSEWHERE = NoValidHost(explanation=Explanation(considered=0), reason="the requested host is in another cell")
"""The decision about a host that is none of the cell's: its schedulers would speak of its other properties."""


async def is_elsewhere(parts: Parts, host: str | None) -> bool:
    """Tell whether a host that was asked for is none of this cell."""
    return host is not None and not await parts.database.read(partial(agents.has, host=host))


def not_asked(parts: Parts, why: str, *, allowed: bool, moves: bool) -> str:
    """Return why the cell has no host, with the rule that keeps the server in its cell, if one does.

    `allowed`: its caller passed the rule of the policy; `moves`: the server is on a host, and would be moved from it.
    """
    rule = kept_by(
        allowed=allowed, max_cells=parts.max_cells, moves_between_cells=not moves or parts.settings.moves_between_cells
    )
    return why if rule is None else cells_not_asked(why, rule)
