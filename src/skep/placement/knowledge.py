"""What one scheduler knows of the world: columns, claims and groups that agree, and what follows from them.

Pure. The service fills it from records, a simulator from wherever it likes.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.domain.claims import Claim
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.placement.claims import ClaimIndex
from skep.placement.groups import GroupIndex, GroupSlot
from skep.placement.hosts.beats import Beats
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.placement import Placement
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings
from skep.placement.unrecorded import Unrecorded

STATES_AWAITED_SECONDS = 60.0
"""For so long after an epoch began no server is refused for want of another service's states: those services write
again when they notice."""
STATES_FOLLOW_SECONDS = 5.0
"""For so long after the first of its states others of the same service are expected to follow."""


class Knowledge:
    """The columns with their indexes, who may be asked, and who cannot be judged now."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        self.epoch = ""
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.groups = GroupIndex()
        self.placement = Placement(self.table, self.groups, settings)
        self.lost_groups: dict[GroupUuid, tuple[CellUuid, ...]] = {}
        """Groups whose record was lost, with the cells that have told their members again."""
        self.awaits_states = False
        """An epoch has begun so lately that other services may not have written their states again."""
        self._beats = Beats(settings.beat_lapse_seconds)
        self._awaits_until: float | None = None
        self._told_since: dict[str, float] = {}
        """When states of a namespace were first seen in this epoch; kept while any are awaited."""
        self._now = 0.0
        self._waiting_at: dict[bool, tuple[int, Mask | None]] = {}
        """Hosts that cannot be judged, and when that was found; for forced requests and for others."""

    def take_beat(
        self,
        cell: CellUuid,
        conductor: str,
        heard: tuple[NodeUuid, ...],
        at: int,
        now: float | None,
        *,
        listening: bool = False,
    ) -> None:
        """Take the beat of one conductor of a cell.

        `now`: the monotonic clock when it changed; None where its age is not known.
        """
        if self._beats.take(cell, conductor, heard, at, now, listening=listening):
            self._listen(cell)
        else:
            self.table.touch_heard(cell, self._beats.latest(cell))

    def correct_beat(self, cell: CellUuid, conductor: str, heard: tuple[NodeUuid, ...], *, listening: bool) -> None:
        """Set whom the latest beat of a conductor names, when that becomes known after it."""
        if self._beats.correct(cell, conductor, heard, listening=listening):
            self._listen(cell)

    def drop_beat(self, cell: CellUuid, conductor: str) -> None:
        """Forget the beat of one conductor."""
        self._beats.drop(cell, conductor)
        self._listen(cell)

    def observe(self, now: float) -> None:
        """Let the beats lapse that have not changed for too long by now, a reading of the monotonic clock."""
        for cell in self._beats.observe(now):
            self._listen(cell)
        if self.awaits_states:
            self._await_states(now)

    def await_states(self) -> None:
        """Expect other services to write their states again, for a while from the next `observe` on."""
        self.awaits_states, self._awaits_until = True, None
        self._told_since.clear()

    def _await_states(self, now: float) -> None:
        self._now = now
        if self._awaits_until is None:
            self._awaits_until = now + STATES_AWAITED_SECONDS
        self.awaits_states = now < self._awaits_until
        for name in self.table.joined.names_told():
            self._told_since.setdefault(name, now)

    def _is_told(self, namespace: str) -> bool:
        """Tell whether what a namespace does not say has been left out, rather than not been said yet."""
        since = self._told_since.get(namespace)
        return since is not None and self._now - since >= STATES_FOLLOW_SECONDS

    def share_hosts(self, own: str, others: Iterable[str]) -> bool:
        """Share the hosts between this scheduler, `own`, and the others that live; tell whether these are new."""
        return self.placement.partition.set_members(own, others)

    def unrecorded(self) -> Unrecorded:
        """Return what is known beside records, for `restore_unrecorded`."""
        run, others = self.placement.partition.members
        return Unrecorded(
            epoch=self.epoch,
            beats=self._beats.states(),
            awaits_states=self.awaits_states,
            awaits_until=self._awaits_until,
            told_since=dict(self._told_since),
            now=self._now,
            run=run,
            others=others,
            claims=self.claims.assumed(),
            slots=self.groups.assumed(),
            mix=self.table.mix.state(),
        )

    def restore_unrecorded(self, known: Unrecorded) -> None:
        """Know what was known beside the records, which must be known already but for beats."""
        self.epoch = known.epoch
        for cell in self._beats.restore(known.beats):
            self._listen(cell)
        self.awaits_states, self._awaits_until = known.awaits_states, known.awaits_until
        self._told_since, self._now = dict(known.told_since), known.now
        self.share_hosts(known.run, known.others)
        self.table.mix.restore(known.mix)
        for claim in known.claims:
            self.claims.assume(claim)
        for group, slot in known.slots:
            self.groups.assume(group, slot)

    def conductors_gone(self, cell: CellUuid, now: float) -> list[str]:
        """Return the conductors of a cell whose beats are of no use any more."""
        return self._beats.gone(cell, now)

    def _listen(self, cell: CellUuid) -> None:
        self.table.set_heard(cell, *self._beats.heard(cell))
        self.table.set_cell(cell, living=self._beats.is_living(cell))

    def claim_of(self, attempt: tuple[InstanceUuid, int], group: GroupUuid | None) -> Claim | None:
        """Return the stored claim of an attempt on the host where it runs or will run, if that host is mapped still.

        Calls that were repeated while their news were late may have left several: then the one with the slot in the
        server's `group` counts, else the first by node.
        """
        table, instance, number = self.table, *attempt
        found: Claim | None = None
        for claim in self.claims.all_of(attempt):
            row = table.row_of.get(claim.node)
            if claim.role == "move_source" or row is None or not table.mapped[row]:
                continue
            if group is None or self.groups.is_stored(group, GroupSlot(instance, number, claim.node)):
                return claim
            found = found or claim
        return found

    def asserted(self, cell: CellUuid) -> bool:
        """Tell whether the cell has asserted its claims in this epoch."""
        flags = self.table.cells.get(cell)
        return flags is not None and flags.asserted

    def group_unknown(self, rule: GroupRule | None) -> str | None:
        """Return why a hard policy cannot be judged yet: a cell may hold members that it has not told."""
        if rule is None or not rule.is_hard:
            return None
        believed = rule.cells if rule.epoch == self.epoch else None
        cells = believed if believed is not None else self.known_cells()
        if rule.uuid not in self.lost_groups and all(self.asserted(cell) for cell in cells):
            return None
        return "the members of the server group are not all known yet"

    def not_ready(self, request: PlacementRequest, instance: InstanceUuid) -> str | None:
        """Return why the hosts that fit may be among those that cannot be judged now; None if none may be."""
        if not self.known_cells():
            return "the operator's settings are not known yet"
        waiting = self._waiting(forced=request.is_forced)
        if waiting is not None and (waiting & self.placement.might_fit(request, instance)).any():
            return "a cell that may hold the server is not ready yet"
        return self._states_missing(request, instance)

    def _waiting(self, *, forced: bool) -> Mask | None:
        """Return the hosts that cannot be judged now, as long as no facts of hosts change; None if there are none."""
        noted = self.table.log.facts_noted
        known = self._waiting_at.get(forced)
        if known is None or known[0] != noted:
            mask = self._not_judged(forced=forced)
            known = self._waiting_at[forced] = (noted, mask if mask.any() else None)
        return known[1]

    def _not_judged(self, *, forced: bool) -> Mask:
        table = self.table
        size = table.size
        waiting = HostView(table).none()
        for name in table.cell_names:
            cell = table.cells[name]
            mine = table.cell[:size] == cell.code
            if not cell.known:
                continue
            if not cell.asserted:
                waiting |= mine
            elif cell.living:
                waiting |= mine & table.heard[:size] & ~table.reported[:size]
            elif not forced:
                waiting |= mine
        if not forced:
            waiting &= ~table.disabled[:size] & ~table.forced_down[:size]
        return waiting

    def _states_missing(self, request: PlacementRequest, instance: InstanceUuid) -> str | None:
        """Return of which services states are awaited that may let a host through; None if of none."""
        if not self.awaits_states:
            return None
        names = {name for name in self.placement.namespaces_read(request) if not self._is_told(name)}
        if not names:
            return None
        size = self.table.size
        usable = self.table.ready[:size] & self.table.up[:size] & ~self.table.disabled[:size]
        if not (usable & self.placement.might_fit(request, instance, unknown=names)).any():
            return None
        return f"states of {', '.join(sorted(names))} may not have been written again yet"

    def known_cells(self) -> list[CellUuid]:
        """Return the cells that the operator has named."""
        return [cell for cell, flags in self.table.cells.items() if flags.known]
