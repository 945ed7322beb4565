"""What schedulers take from a cell itself: the same messages, as far as they speak of that cell alone.

A cell's conductors reach schedulers by an address that names their cell, and where messaging has accounts no other. So
whoever got hold of one cell's credentials can spoil what is known of that cell, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, GetHostStates, ReleaseClaims, SelectDestinations, UpdateHostState
from skep.messages.to_scheduler_liveness import Beat
from skep.scheduler.states import HostStates
from skep.transport.base import CellHandler, CellHandlers, Handlers

Check = Callable[[CellUuid, Any], None]
"""Raises Forbidden when a message speaks of another cell than the one that it comes from."""


class ForCells:
    """Chooses among the handlers of a scheduler those that cells may use, each with what it must hold to."""

    def __init__(self, states: HostStates, handlers: Handlers) -> None:
        self._states = states
        checks: dict[type[Any], Check] = {
            UpdateHostState: _own_reports,
            Beat: _own_beat,
            AssertClaims: self._own_claims,
            ReleaseClaims: self._own_releases,
            SelectDestinations: self._own_selection,
            GetHostStates: self._own_states,
        }
        self.handlers: CellHandlers = {message: _checked(check, handlers[message]) for message, check in checks.items()}

    def _own_claims(self, cell: CellUuid, message: AssertClaims) -> None:
        _own(cell, message.cell, "cell")
        self._own_nodes(cell, (claim.node for claim in message.claims), "claims")
        self._own_nodes(cell, (slot.key.node for slot in message.slots), "slots")

    def _own_releases(self, cell: CellUuid, message: ReleaseClaims) -> None:
        self._own_nodes(cell, (key.node for key in message.claims), "claims")

    def _own_selection(self, cell: CellUuid, message: SelectDestinations) -> None:
        _own(cell, message.cell, "cell")
        if message.supersedes_above is not None:
            raise Forbidden("supersedes_above: only processes above the cells may set it.")

    def _own_states(self, cell: CellUuid, message: GetHostStates) -> None:
        _own(cell, message.cell, "cell")
        self._own_nodes(cell, message.nodes or (), "nodes")

    def _own_nodes(self, cell: CellUuid, nodes: Iterable[NodeUuid], field: str) -> None:
        for node in set(nodes):
            other = self._states.place(node)[1]
            if other is not None and other != cell:
                raise Forbidden(f"{field}: node {node} belongs to cell {other}, cell {cell} may not name it.")


def _checked(check: Check, handler: Callable[[Any, RequestContext | None], Awaitable[Any]]) -> CellHandler:
    async def answer(cell: CellUuid, message: Any, context: RequestContext | None) -> Any:
        check(cell, message)
        return await handler(message, context)

    return answer


def _own_reports(cell: CellUuid, message: UpdateHostState) -> None:
    # A node that is mapped to another cell is refused report by report: its cell's other hosts are not to blame.
    for report in message.reports:
        _own(cell, report.cell, "reports")


def _own_beat(cell: CellUuid, message: Beat) -> None:
    _own(cell, message.cell, "cell")


def _own(cell: CellUuid, named: CellUuid | None, field: str) -> None:
    if named != cell:
        raise Forbidden(f"{field}: cell {cell} may not name {f'cell {named}' if named else 'all cells'}.")
