"""Records as they came, and the knowledge that follows from them.

Pure: records and the reading of a monotonic clock come in as arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from skep.domain.claims import ClaimKey
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.messages.to_scheduler import AggregateWish, Holding, HostWish, ListClaimsReply
from skep.scheduler.knowledge import Knowledge
from skep.scheduler.service.records import (
    AGGREGATES,
    BEATS,
    CELLS,
    COMPUTE,
    GROUPS,
    OPERATOR,
    BeatValue,
    CellValue,
    ComputeValue,
    GroupValue,
)
from skep.scheduler.settings import SchedulerSettings
from skep.synchronizer.base import Key


@dataclass(frozen=True, slots=True)
class Held:
    """One record: its generation in the backend, and its value, None when it was removed or says nothing."""

    generation: int
    value: Any


_ABSENT = Held(0, None)


class HostStates(Knowledge):
    """Knowledge that always agrees with the records it came from."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        super().__init__(settings)
        self._held: dict[Key, Held] = {}
        self._removed: OrderedDict[Key, float | None] = OrderedDict()
        """Records without a value, and the monotonic clock when they were taken: kept for their generation only."""

    # --- records come in --------------------------------------------------------------------------

    def held(self, key: Key) -> Held:
        """Return what is known of a record."""
        return self._held.get(key, _ABSENT)

    def keys(self, namespace: str) -> list[Key]:
        """Return the keys of a namespace that have a value."""
        return [key for key, held in self._held.items() if key.namespace == namespace and held.value is not None]

    def begin(self, epoch: str) -> None:
        """Forget every record: another epoch begins, or all is told again."""
        for key in list(self._held):
            self._apply(key, self._held[key].value, None, None)
        self._held.clear()
        self._removed.clear()
        self.epoch = epoch

    def take(self, key: Key, generation: int, value: Any, now: float | None) -> None:
        """Take a record, unless a younger one is known. `now` is None where its age is not known (a snapshot)."""
        before = self.held(key)
        if generation > before.generation:
            self._held[key] = Held(generation, value)
            self._removed.pop(key, None)
            if value is None:
                self._removed[key] = now
            self._apply(key, before.value, value, now)

    def forget(self, key: Key) -> None:
        """Forget one record that the backend does not have."""
        before = self._held.pop(key, _ABSENT)
        self._removed.pop(key, None)
        self._apply(key, before.value, None, None)

    def forget_removed(self, before: float) -> None:
        """Forget records that were removed before a reading of the monotonic clock (or at a time that is not known).

        The backend may forget them too, and begin their keys anew: whoever still held the old generation would take
        the new record for an old one.
        """
        while self._removed and (next(iter(self._removed.values())) or before) <= before:
            del self._held[next(iter(self._removed))]
            self._removed.popitem(last=False)

    def _apply(self, key: Key, before: Any, after: Any, now: float | None) -> None:
        match key.namespace:
            case "compute":
                self._apply_compute(NodeUuid(key.name), before, after)
            case "groups":
                slots = after.slots if isinstance(after, GroupValue) else ()
                self.groups.set_stored(GroupUuid(key.name), slots)
            case "operator":
                self._apply_wish(NodeUuid(key.name), after)
            case "aggregates":
                self._apply_aggregate(int(key.name), after)
            case "cells":
                self._apply_cell(CellUuid(key.name), after)
            case "beats":
                self._apply_beat(key.name, after, now)

    def _apply_compute(self, node: NodeUuid, before: ComputeValue | None, after: ComputeValue | None) -> None:
        if after is None or after.report is None:
            self.table.drop_report(node)
        elif before is None or before.report != after.report or before.cell != after.cell:
            self.table.set_report(node, after.cell, after.report.usage)
        old = before.claims if before is not None else ()
        new = after.claims if after is not None else ()
        if old is not new:
            self.claims.set_stored(node, new)

    def _apply_wish(self, node: NodeUuid, wish: HostWish | None) -> None:
        if wish is None:
            self.table.drop_wish(node)
            return
        self.table.set_wish(node, wish.host, wish.cell, disabled=wish.disabled, forced_down=wish.forced_down)

    def _apply_aggregate(self, number: int, wish: AggregateWish | None) -> None:
        if wish is None:
            self.table.drop_aggregate(number)
        else:
            self.table.set_aggregate(number, wish.hosts, wish.metadata)

    def _apply_cell(self, cell: CellUuid, value: CellValue | None) -> None:
        wish = value.wish if value is not None else None
        self.table.set_cell(
            cell,
            known=wish is not None,
            disabled=wish is not None and wish.disabled,
            asserted=value is not None and value.asserted,
        )

    def _apply_beat(self, name: str, beat: BeatValue | None, now: float | None) -> None:
        cell, _, conductor = name.partition("/")
        if beat is None:
            self.drop_beat(CellUuid(cell), conductor)
        else:
            self.take_beat(CellUuid(cell), conductor, beat.heard, beat.at, now, listening=beat.listening)

    # --- questions --------------------------------------------------------------------------------

    def host_state(self, node: NodeUuid) -> HostState | None:
        """Join what is known of a node; None unless it is mapped and has reported in this epoch."""
        held = self.held(Key(COMPUTE, node))
        wish: HostWish | None = self.held(Key(OPERATOR, node)).value
        value: ComputeValue | None = held.value
        if wish is None or value is None or value.report is None:
            return None
        row = self.table.row_of[node]
        return HostState(
            node=node,
            cell=wish.cell,
            usage=value.report.usage,
            incarnation=value.report.incarnation,
            seq=value.report.seq,
            claims=value.claims,
            generation=held.generation,
            disabled=wish.disabled,
            disabled_reason=wish.disabled_reason,
            forced_down=wish.forced_down,
            up=bool(self.table.up[row]),
            last_heard=int(self.table.last_heard[row]),
            zone=self.table.zone_of(row),
            aggregates=self.table.aggregates_of(wish.host),
        )

    def holdings(self) -> ListClaimsReply:
        """Return all claims and slots, also those on nodes that are not mapped or have not reported."""
        claims, slots = [], []
        for key, held in self._held.items():
            if isinstance(held.value, ComputeValue):
                host, cell = self._place(NodeUuid(key.name))
                claims += [
                    Holding(
                        key=ClaimKey(claim.instance, claim.attempt, claim.node, claim.group),
                        host=host,
                        cell=cell,
                        role=claim.role,
                        resources=claim.resources,
                    )
                    for claim in held.value.claims
                ]
            elif isinstance(held.value, GroupValue):
                for slot in held.value.slots:
                    host, cell = self._place(slot.node)
                    name = ClaimKey(slot.instance, slot.attempt, slot.node, GroupUuid(key.name))
                    slots.append(Holding(key=name, host=host, cell=cell))
        asserted = tuple(cell for cell in self.table.cells if self.asserted(cell))
        return ListClaimsReply(claims=tuple(claims), slots=tuple(slots), epoch=self.epoch, asserted=asserted)

    def _place(self, node: NodeUuid) -> tuple[str, CellUuid | None]:
        """Return the host's name and cell, from the operator's mapping or else from its own report."""
        wish: HostWish | None = self.held(Key(OPERATOR, node)).value
        if wish is not None:
            return wish.host, wish.cell
        value: ComputeValue | None = self.held(Key(COMPUTE, node)).value
        if value is None:
            return "", None
        return value.report.usage.host if value.report is not None else "", value.cell

    def namespaces(self) -> dict[str, int]:
        """Return how many records each namespace has."""
        counts = dict.fromkeys((AGGREGATES, BEATS, CELLS, COMPUTE, GROUPS, OPERATOR), 0)
        for key, held in self._held.items():
            if held.value is not None:
                counts[key.namespace] = counts.get(key.namespace, 0) + 1
        return counts
