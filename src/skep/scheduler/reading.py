"""Host states as schedulers hold them, read a page at a time in the order of node UUIDs.

A page costs its hosts and a few columns' worth of arithmetic, not the table: the order is kept, conditions are masks,
and only the hosts of the page are joined from their records.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.domain.errors import BadRequest
from skep.domain.hosts import HostState
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply
from skep.placement.host_conditions import matching
from skep.placement.host_fields import Fields
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.scheduler.states import HostStates

MAX_PAGE = 1000
MAX_CONDITIONS = 32
PAGE_BYTES = 512 * 1024
"""A page ends with the host that makes it larger; a message carries 1 MiB."""


class Reading:
    """Answers `GetHostStates` from what one scheduler holds."""

    def __init__(self, states: HostStates) -> None:
        self._states = states
        self._nodes: list[NodeUuid] = []
        """In their order."""
        self._rows: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._encoder = msgspec.msgpack.Encoder()

    def page(self, message: GetHostStates) -> GetHostStatesReply:
        """Return one page. Raises BadRequest naming what there is not."""
        limit = MAX_PAGE if message.limit is None else message.limit
        if not 1 <= limit <= MAX_PAGE:
            raise BadRequest(f"limit: expected 1 to {MAX_PAGE}.")
        if len(message.conditions) > MAX_CONDITIONS:
            raise BadRequest(f"conditions: expected at most {MAX_CONDITIONS}.")
        fields = Fields(self._states.table, message.fields) if message.fields is not None else None
        rows = self._after(message.marker, self._mask(message))
        found: list[HostState] = []
        documents: list[dict[str, Any]] = []
        size, marker = 0, None
        for row in map(int, rows):
            state = self._states.host_state(self._states.table.nodes[row])
            if state is None:
                continue
            if len(found) == limit or size > PAGE_BYTES:
                marker = found[-1].node
                break
            found.append(state)
            if fields is not None:
                documents.append(fields.of(state, row))
            size += len(self._encoder.encode(documents[-1] if fields is not None else state))
        return GetHostStatesReply(
            hosts=() if fields is not None else tuple(found),
            documents=tuple(documents),
            epoch=self._states.epoch,
            next_marker=marker,
            silent=tuple(node for node in message.nodes or () if self._is_silent(node)),
        )

    def _is_silent(self, node: NodeUuid) -> bool:
        table = self._states.table
        row = table.row_of.get(node)
        return row is not None and table.is_living(row) and not table.heard[row]

    def _mask(self, message: GetHostStates) -> Mask:
        table = self._states.table
        hosts = HostView(table)
        mask = hosts.mapped & table.reported[: table.size]
        if message.nodes is not None:
            mask &= hosts.having_nodes(message.nodes)
        if message.hosts is not None:
            mask &= hosts.named(message.hosts)
        if message.cell is not None:
            flags = table.cells.get(message.cell)
            mask &= hosts.cell == flags.code if flags is not None else hosts.none()
        if message.zone is not None:
            mask &= hosts.in_zone(message.zone)
        if message.aggregate is not None:
            mask &= hosts.in_aggregate(message.aggregate)
        for condition in message.conditions:
            mask &= matching(table, condition)
        return mask

    def _after(self, marker: NodeUuid | None, mask: Mask) -> NDArray[np.intp]:
        """Return the rows of the mask in the order of their nodes, after the marker."""
        table = self._states.table
        if len(self._nodes) != table.size:
            order = sorted(range(table.size), key=table.nodes.__getitem__)
            self._nodes = [table.nodes[row] for row in order]
            self._rows = np.array(order, dtype=np.intp)
        rows = self._rows[bisect_right(self._nodes, marker) if marker is not None else 0 :]
        return rows[mask[rows]]
