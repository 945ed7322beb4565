"""What the operator wants, from rows of the API database into the synchronizer: only what differs is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from skep.messages.to_scheduler import PublishOperatorState, aggregate_name
from skep.scheduler import changes
from skep.scheduler.changes import Changing
from skep.scheduler.commits import Commits
from skep.scheduler.records import AGGREGATES, CELLS, OPERATOR, aggregate_key
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

Kind = Literal["hosts", "aggregates", "cells"]
_NAMESPACES: dict[Kind, str] = {"hosts": OPERATOR, "aggregates": AGGREGATES, "cells": CELLS}


async def publish_operator_state(states: HostStates, commits: Commits, message: PublishOperatorState) -> None:
    """Make the records say what `message` says, in the part that it tells.

    Cells come last: until a first cell is known no scheduler answers that there is no valid host. What others wrote is
    read first: records that agree in memory may be gone from the backend, with another epoch begun.
    """
    await commits.look()
    values: dict[Key, Any] = {Key(OPERATOR, one.node): one for one in message.hosts}
    values |= {aggregate_key(one.id, one.page): one for one in message.aggregates}
    gone = {*_told(states, message, "hosts"), *_told(states, message, "aggregates")} - values.keys()
    await _write(states, commits, {**values, **dict.fromkeys(gone)}, changes.set_value)
    cells: dict[Key, Any] = {Key(CELLS, one.uuid): one for one in message.cells}
    gone = set(_told(states, message, "cells")) - cells.keys()
    await _write(states, commits, {**cells, **dict.fromkeys(gone)}, changes.set_cell_intent)


async def _write(
    states: HostStates, commits: Commits, values: Mapping[Key, Any], changing: Callable[[Any], Changing[None]]
) -> None:
    """Change the records that differ. A republished page mostly finds each as it is."""
    differing = []
    for key, wanted in values.items():
        change = changing(wanted)
        value = states.held(key).value
        if change(value).value is not value:
            differing.append(commits.change(key, change))
    await asyncio.gather(*differing)


def _told(states: HostStates, message: PublishOperatorState, kind: Kind) -> list[Key]:
    """Return the keys of the records about which the message says everything."""
    part = message.part
    if part is not None and part.kind != kind:
        return []
    if part is not None and part.names is not None:
        return [key for name in part.names if states.held(key := Key(_NAMESPACES[kind], name)).value is not None]
    after, until = (part.after, part.until) if part is not None else ("", None)
    if kind == "aggregates":
        return [key for key in states.keys(AGGREGATES) if _is_between(_ordered(key), after, until)]
    namespace = _NAMESPACES[kind]
    return [Key(namespace, name) for name in states.names.between(namespace, after, until)]


def _ordered(key: Key) -> str:
    number, _, page = key.name.partition("/")
    return aggregate_name(int(number), int(page or 0))


def _is_between(name: str, after: str, until: str | None) -> bool:
    return after < name and (until is None or name <= until)
