"""What the operator wants, from rows of the API database into the synchronizer: only what differs is written."""

from __future__ import annotations

import asyncio

from skep.messages.to_scheduler import PublishOperatorState
from skep.scheduler.service import changes
from skep.scheduler.service.commits import Commits
from skep.scheduler.service.records import AGGREGATES, CELLS, OPERATOR
from skep.scheduler.service.states import HostStates
from skep.synchronizer.base import Key


async def publish_operator_state(states: HostStates, commits: Commits, message: PublishOperatorState) -> None:
    """Make the records say exactly what `message` says.

    Cells come last: until a first cell is known no scheduler answers that there is no valid host.
    """
    wishes: dict[Key, object] = {Key(OPERATOR, wish.node): wish for wish in message.hosts}
    wishes |= {Key(AGGREGATES, str(wish.id)): wish for wish in message.aggregates}
    gone = {*states.keys(OPERATOR), *states.keys(AGGREGATES)} - wishes.keys()
    await asyncio.gather(
        *(commits.change(key, changes.set_wish(wish)) for key, wish in wishes.items()),
        *(commits.change(key, changes.set_wish(None)) for key in gone),
    )
    cells = {Key(CELLS, wish.uuid): wish for wish in message.cells}
    await asyncio.gather(
        *(commits.change(key, changes.set_cell_wish(wish)) for key, wish in cells.items()),
        *(commits.change(key, changes.set_cell_wish(None)) for key in states.keys(CELLS) if key not in cells),
    )
