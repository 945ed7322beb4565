"""Records as they came, and the knowledge that follows from them.

Pure: records and the reading of a monotonic clock come in as arguments.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from skep.domain.cells import HostIntent
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.domain.namespaces import Namespace
from skep.messages.to_scheduler import AggregatePage
from skep.placement.hosts.hearing import Hearing
from skep.placement.hosts.table import Intake
from skep.placement.knowledge import Knowledge
from skep.placement.settings import SchedulerSettings
from skep.scheduler.members import Members
from skep.scheduler.names import Names
from skep.scheduler.records import (
    AGGREGATES,
    BEATS,
    CELLS,
    COMPUTE,
    GROUPS,
    HEARING,
    NAMESPACES,
    OPERATOR,
    STATES,
    BeatValue,
    CellValue,
    ComputeValue,
    GroupValue,
    HearingValue,
    StateValue,
)
from skep.scheduler.sharing import Sharing, same_facts
from skep.synchronizer.base import Key


class Held(msgspec.Struct, frozen=True, gc=False):
    """One record: its generation in the backend, and its value, None when it was removed or says nothing."""

    generation: int
    value: Any


_ABSENT = Held(0, None)
MOST_LET_GO = 10_000
MOST_REASON = 500
"""Characters that are kept of why a record cannot be understood."""

log = structlog.get_logger("skep.scheduler")
_LOST: dict[str, Any] = {
    COMPUTE: ComputeValue(cell=CellUuid(""), incomplete=True),
    GROUPS: GroupValue(slots=(), incomplete=True),
}
"""What stands for a record that cannot be understood, where to know nothing is not the same as to know of nothing."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a record counts as unknown."""

    generation: int
    reason: str
    since: float | None
    """The monotonic clock when it was found; None: when all was read anew."""


NOT_APPLICABLE = (ValueError, TypeError, OverflowError, KeyError, RecursionError)
"""What a value raises that can be decoded, but not be true: a number that no column holds, a name that is none."""


class HostStates(Knowledge):
    """Knowledge that always agrees with the records it came from."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        super().__init__(settings)
        self.members = Members()
        self._held: dict[str, dict[str, Held]] = {}
        """By namespace and name."""
        self._intake = Intake(self.table)
        self._sharing = Sharing()
        self._removed: OrderedDict[Key, float | None] = OrderedDict()
        """Records without a value, and the monotonic clock when they were taken: kept for their generation only."""
        self.names = Names()
        self.hearing = Hearing()
        self.quarantined: dict[Key, Quarantine] = {}
        self.lost_nodes: set[NodeUuid] = set()
        """Nodes whose record was lost: the claims on them are to be told again."""
        self._aggregate_pages: dict[int, dict[int, AggregatePage]] = {}

    # --- records come in --------------------------------------------------------------------------

    def held(self, key: Key) -> Held:
        """Return what is known of a record."""
        names = self._held.get(key.namespace)
        return _ABSENT if names is None else names.get(key.name, _ABSENT)

    def keys(self, namespace: str) -> list[Key]:
        """Return the keys of a namespace that have a value."""
        return [Key(namespace, name) for name in self.names.of(namespace)]

    def begin(self, epoch: str) -> None:
        """Forget every record: another epoch begins."""
        while self.let_go(MOST_LET_GO):
            pass
        self._removed.clear()
        self.quarantined.clear()
        self.epoch = epoch
        self.await_states()

    def let_go(self, most: int) -> bool:
        """Forget some records of an epoch that is over; tell whether there are more."""
        for namespace, names in list(self._held.items()):
            while names:
                if most == 0:
                    return True
                most -= 1
                name, held = names.popitem()
                if held.value is not None:
                    self._apply(Key(namespace, name), held.value, None, None)
            del self._held[namespace]
        return False

    def take(self, key: Key, generation: int, value: Any, now: float | None) -> None:
        """Take a record, unless a younger one is known. `now` is None where its age is not known (a snapshot)."""
        self.take_all(((key, generation, value),), now)

    def take_all(self, fresh: Iterable[tuple[Key, int, Any]], now: float | None) -> None:
        """Take many records: key, generation and value of each, as for `take`."""
        try:
            for key, generation, value in fresh:
                before = self.held(key)
                if generation > before.generation:
                    self._take(key, before.value, generation, value, now)
        finally:
            self._intake.flush()

    def _take(self, key: Key, before: Any, generation: int, value: Any, now: float | None) -> None:
        try:
            value = self._sharing.shared(before, value)
            self._hold(key, Held(generation, value))
            if self._removed:
                self._removed.pop(key, None)
            if self.quarantined:
                self.quarantined.pop(key, None)
            if value is None:
                self._removed[key] = now
            self._apply(key, before, value, now)
        except NOT_APPLICABLE as error:
            self.quarantine(key, generation, f"it cannot be true: {error}", now)

    def _hold(self, key: Key, held: Held) -> None:
        names = self._held.get(key.namespace)
        if names is None:
            names = self._held[sys.intern(key.namespace)] = {}
        names[sys.intern(key.name)] = held

    def quarantine(self, key: Key, generation: int, reason: str, now: float | None) -> None:
        """Take a record that cannot be understood: it counts as unknown until it is written anew.

        A node is no candidate then before its cell has told its claims again, a group takes no member before all
        cells have. Everything else is told again anyway. `now`: as for `take`.
        """
        before = self.held(key)
        value = _LOST.get(key.namespace)
        self._hold(key, Held(generation, value))
        self._removed.pop(key, None)
        if value is None:
            self._removed[key] = now
        reason = reason[:MOST_REASON]
        known = self.quarantined.pop(key, None)
        if known is None or known.reason != reason:
            log.error("record quarantined", namespace=key.namespace, key=key.name[:MOST_REASON], reason=reason)
        self.quarantined[key] = Quarantine(generation, reason, now)
        try:
            self._apply(key, before.value, value, now)
        except NOT_APPLICABLE:
            # Its very name says nothing, so nothing was ever known by it.
            self.names.note(key, present=False)

    def forget(self, key: Key) -> None:
        """Forget one record that the backend does not have."""
        before = self._held.get(key.namespace, {}).pop(key.name, _ABSENT)
        self._removed.pop(key, None)
        self.quarantined.pop(key, None)
        if before.value is None:
            return
        self._apply(key, before.value, None, None)

    def forget_removed(self, before: float) -> None:
        """Forget records that were removed before a reading of the monotonic clock (or at a time that is not known).

        The backend may forget them too, and begin their keys anew: whoever still held the old generation would take
        the new record for an old one.
        """
        while self._removed:
            key, at = next(iter(self._removed.items()))
            if at is not None and at > before:
                return
            del self._held[key.namespace][key.name]
            self._removed.popitem(last=False)

    def _apply(self, key: Key, before: Any, after: Any, now: float | None) -> None:
        self.names.note(key, present=after is not None)
        match key.namespace:
            case "compute":
                self._apply_compute(NodeUuid(key.name), before, after)
            case "groups":
                self._apply_group(GroupUuid(key.name), after)
            case "operator":
                self._apply_intent(NodeUuid(key.name), after)
            case "aggregates":
                number, _, page = key.name.partition("/")
                self._apply_aggregate(int(number), int(page or 0), after)
            case "cells":
                self._apply_cell(CellUuid(key.name), after)
            case "beats":
                self._apply_beat(key.name, after, now)
            case "schedulers":
                self._apply_member(key.name, now, present=after is not None)
            case "hearing":
                conductor, _, page = key.name.rpartition("/")
                self._apply_page(conductor, int(page), after)
            case "namespaces":
                self.table.joined.set_schema(key.name, after.schema if isinstance(after, Namespace) else None)
            case "states":
                namespace, _, name = key.name.partition("/")
                state = after.state if isinstance(after, StateValue) else None
                self.table.joined.set_state(namespace, name, state)

    def _apply_compute(self, node: NodeUuid, before: ComputeValue | None, after: ComputeValue | None) -> None:
        incomplete = after is not None and after.incomplete
        if incomplete:
            self.lost_nodes.add(node)
        else:
            self.lost_nodes.discard(node)
        self._apply_report(node, before, after)
        old = before.claims if before is not None else ()
        new = after.claims if after is not None else ()
        if old is not new:
            self.claims.set_stored(node, new)

    def _apply_report(self, node: NodeUuid, before: ComputeValue | None, after: ComputeValue | None) -> None:
        """Put a report into the columns, or what it says anew of what the host uses."""
        if after is None or after.report is None or after.incomplete:
            self._intake.drop(node)
            return
        usage = after.report.usage
        if before is None or before.report is None or before.incomplete or before.cell != after.cell:
            self._intake.report(node, after.cell, usage)
            return
        former = before.report.usage
        if former is usage:
            return
        if same_facts(former, usage):
            self._intake.used(node, usage)
        else:
            self._intake.report(node, after.cell, usage)

    def _apply_intent(self, node: NodeUuid, intent: HostIntent | None) -> None:
        if intent is None:
            self.table.drop_intent(node)
            return
        if intent.node != node:
            raise ValueError(f"node: the record of {node[:MOST_REASON]} is of {intent.node[:MOST_REASON]}")
        self.table.set_intent(intent)

    def _apply_group(self, group: GroupUuid, value: GroupValue | None) -> None:
        if value is not None and value.incomplete:
            self.lost_groups[group] = value.told
        else:
            self.lost_groups.pop(group, None)
        self.groups.set_stored(group, value.slots if value is not None else ())

    def _apply_aggregate(self, number: int, page: int, value: AggregatePage | None) -> None:
        pages = self._aggregate_pages.setdefault(number, {})
        if value is not None:
            pages[page] = value
        else:
            pages.pop(page, None)
        if not pages:
            del self._aggregate_pages[number]
            self.table.drop_aggregate(number)
        else:
            hosts = (host for one in pages.values() for host in one.hosts)
            self.table.set_aggregate(number, hosts, pages[min(pages)].metadata)

    def _apply_cell(self, cell: CellUuid, value: CellValue | None) -> None:
        intent = value.intent if value is not None else None
        self.table.set_cell(
            cell,
            known=intent is not None,
            disabled=intent is not None and intent.disabled,
            asserted=value is not None and value.asserted,
        )

    def _apply_beat(self, name: str, beat: BeatValue | None, now: float | None) -> None:
        cell, _, conductor = name.partition("/")
        if beat is None:
            self.hearing.drop_beat(name)
            self.drop_beat(CellUuid(cell), conductor)
            return
        if beat.pages is None:
            self.take_beat(CellUuid(cell), conductor, beat.heard, beat.at, now, listening=beat.listening)
            return
        heard = self.hearing.take_beat(name, beat.pages)
        listening = beat.listening or not heard.complete
        self.take_beat(CellUuid(cell), conductor, heard.nodes, beat.at, now, listening=listening)

    def _apply_page(self, name: str, page: int, value: HearingValue | None) -> None:
        if value is None:
            self.hearing.drop_page(name, page)
            return
        heard = self.hearing.take_page(name, page, value.version, value.nodes)
        beat: BeatValue | None = self.held(Key(BEATS, name)).value
        if heard is not None and beat is not None:
            cell, _, conductor = name.partition("/")
            listening = beat.listening or not heard.complete
            self.correct_beat(CellUuid(cell), conductor, heard.nodes, listening=listening)

    def _apply_member(self, run: str, now: float | None, *, present: bool) -> None:
        if present:
            self.members.take(run, now)
        else:
            self.members.drop(run)

    # --- questions --------------------------------------------------------------------------------

    def host_state(self, node: NodeUuid) -> HostState | None:
        """Join what is known of a node; None unless it is mapped and has reported in this epoch."""
        held = self.held(Key(COMPUTE, node))
        intent: HostIntent | None = self.held(Key(OPERATOR, node)).value
        value: ComputeValue | None = held.value
        if intent is None or value is None or value.report is None:
            return None
        row = self.table.row_of[node]
        return HostState(
            node=node,
            cell=intent.cell,
            usage=value.report.usage,
            incarnation=value.report.incarnation,
            seq=value.report.seq,
            claims=value.claims,
            generation=held.generation,
            disabled=intent.disabled,
            disabled_reason=intent.disabled_reason,
            forced_down=intent.forced_down,
            up=bool(self.table.up[row]),
            silent=not bool(self.table.heard[row]) if self.table.is_living(row) else None,
            last_heard=int(self.table.last_heard[row]),
            zone=self.table.zone_of(row),
            aggregates=self.table.aggregates_of(intent.host),
            refused=value.refused,
        )

    def place(self, node: NodeUuid) -> tuple[str, CellUuid | None]:
        """Return the host's name and cell, from the operator's mapping or else from its own report."""
        intent: HostIntent | None = self.held(Key(OPERATOR, node)).value
        if intent is not None:
            return intent.host, intent.cell
        value: ComputeValue | None = self.held(Key(COMPUTE, node)).value
        if value is None:
            return "", None
        return value.report.usage.host if value.report is not None else "", value.cell

    def namespaces(self) -> dict[str, int]:
        """Return how many records each namespace has; those of other services under their own names."""
        counts = dict.fromkeys((AGGREGATES, BEATS, CELLS, COMPUTE, GROUPS, HEARING, NAMESPACES, OPERATOR), 0)
        counts |= dict.fromkeys((key.name for key in self.keys(NAMESPACES)), 0)
        for namespace in self._held:
            if namespace != STATES:
                counts[namespace] = self.names.count(namespace)
        for name in self.names.of(STATES):
            service = name.partition("/")[0]
            counts[service] = counts.get(service, 0) + 1
        return counts
