"""One decision: the best host for one member of a request, as a function of the columns.

No clock, dice or I/O: the seed is an argument, and the same columns and request give the same answer whatever the order
in which hosts became known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from skep.domain.builds import Explanation, StageCount
from skep.domain.capacity import Capacity
from skep.domain.claims import Claim
from skep.domain.errors import Conflict
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.providers import Allocation
from skep.placement import explain
from skep.placement.batch.foreseeing import Foreseeing, can_foresee
from skep.placement.batch.together import together
from skep.placement.capacity import capacity
from skep.placement.choice import Choice, NoHost, choice_of, place
from skep.placement.explain.multiplying import Multiplying
from skep.placement.explain.refusals import Refusals
from skep.placement.filters.abilities import Recorded
from skep.placement.groups import GroupIndex, GroupSlot, member_nodes
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.partition import Partition
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Stage
from skep.placement.plugins.guarding import Guard, PluginFailed
from skep.placement.ranking.min_max import Weighed
from skep.placement.ranking.narrowing import Narrowing
from skep.placement.ranking.picking import Picking
from skep.placement.ranking.ranking import NOBODY, Ranked, Scored
from skep.placement.ranking.shapes import PASSED, Evaluated, Shapes
from skep.placement.registry import pipeline
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings
from skep.placement.spreading import Domains, Passing, Spreading
from skep.placement.weighers.base import Weigher, weighted

_STATE_FILTERS = frozenset({"ReportsFilter", "ComputeFilter"})
"""Those that judge the state a host is in, not whether it suits."""

Weighers = list[tuple[Weigher, float]]


class _Running(msgspec.Struct, frozen=True, eq=False):
    """What of the pipeline concerns one request."""

    asked: PlacementRequest
    """As it was asked."""
    version: int
    """Of the facts of hosts when this was found."""
    request: PlacementRequest
    """With its whole shape."""
    filters: list[Stage]
    """Those that look at more of the request than its shape."""
    weighers: Weighers
    """The same."""


class Placement:
    """Decides over a table of hosts and an index of groups, which its caller keeps up to date."""

    def __init__(self, table: HostTable, groups: GroupIndex, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        self._table = table
        self._groups = groups
        self._settings = settings
        self.guard = Guard(settings.on_plugin_error)
        """Asks what other packages brought."""
        self._min_max = settings.normalization == "min-max"
        self._weighed: Weighed | None = None
        """What the latest decision weighed, where Nova's way was chosen."""
        self._configure()
        self.partition = Partition(table)
        """Whose hosts are looked at first where several schedulers serve one cloud."""
        self._picking = Picking(table, self.partition, settings.host_subset_size)

    def _configure(self) -> None:
        """Take the filters and weighers that settings choose; an aggregate may call a weigher that they leave out."""
        self._called = self._table.multipliers.names
        self._pipeline = self.guard.around(pipeline(self._settings, self._called))
        weighers = (*self._pipeline.shared_weighers, *self._pipeline.request_weighers)
        self._table.mix.learns = any(weigher.learns for weigher, _ in weighers)
        self._shapes = Shapes(self._table, self._pipeline, self._settings.cached_shapes)
        self._multiplying = Multiplying(self._table, self._pipeline)
        self._spreading = Spreading(self._table)
        self._refusals = Refusals(self._table, self._pipeline, self._settings)
        self._latest: _Running | None = None
        self._limits = tuple(entry for entry in self._pipeline.filters if entry.still is not None)

    def choose(
        self, request: PlacementRequest, instance: InstanceUuid, *, seed: int, salt: int | None = None
    ) -> Choice | NoHost:
        """Choose for one member. The caller counts the choice (`deciding.py`) before it asks for the next.

        `salt`: where among equally good hosts it begins, the same for all members of a request; None: its own place.
        """
        try:
            return self._choose(request, instance, seed, salt)
        except PluginFailed as error:
            mapped = int(np.count_nonzero(self._table.mapped))
            return NoHost(lambda: Explanation(considered=mapped), mapped, reason=str(error))

    def choose_together(self, request: PlacementRequest, members: int, *, salt: int) -> list[Choice]:
        """Choose for members of one request what `choose` would one after another, each counted before the next.

        Fewer, or none, where that takes more than is known of hosts that nobody has claimed yet: no host fits any
        more, or filters or weighers concern the request that cannot say what would be. `choose` goes on from there,
        once these are counted.
        """
        try:
            running = self._running(request)
            if request.nested is not None or not self._is_plain(running.request, running):
                return []
            shared = self._shapes.evaluate(running.request)
            order = self._shapes.order(shared, running.request)
        except PluginFailed:
            return []
        weighers = self._pipeline.shared_weighers
        if order is None or not can_foresee(shared.plan.varying, weighers):
            return []
        foreseeing = Foreseeing(self._table, running.request, shared.plan.varying, weighers)
        return together(
            self._table, shared, order, foreseeing, self._multiplying, request.alternates, members, salt=salt
        )

    def _choose(
        self, request: PlacementRequest, instance: InstanceUuid, seed: int, salt: int | None
    ) -> Choice | NoHost:
        running = self._running(request)
        request, weighers = self._with_group(running.request, instance), running.weighers
        shared = self._shapes.evaluate(request)
        salt = place(instance, seed) if salt is None else salt
        considered = shared.considered
        narrowed: list[tuple[Stage, int]] = []
        rows = self._shapes.best(shared, request, salt) if self._is_plain(request, running) else None
        is_plain = rows is not None
        if rows is None:
            ranking, narrowed = self._narrow(shared, request, running, salt)
            # A weigher that looks at the request (members of a soft group, say) compares hosts of the whole cloud, and
            # so does Nova's way of weighing.
            of_all = bool(weighers) or self._min_max
            rows = self._picking.rows(ranking, request, instance, seed, of_all=of_all)
        stages = self._stages(shared, request, narrowed)
        if not rows:
            return NoHost(lambda: self._no_valid_host(request, considered, stages), considered, stages)
        scores = self._shapes.parts(rows) if is_plain else self._scores(request, weighers, rows)
        found = self._multiplying.chosen(considered, stages, scores, rows, plain=is_plain)
        return choice_of(self._table, rows[0], rows[1:], found)

    def _is_plain(self, request: PlacementRequest, running: _Running) -> bool:
        """Tell whether nothing but the shape of the request decides: so it is for most."""
        return not running.filters and not running.weighers and not self._min_max and self._picking.takes_best(request)

    def describe(self, row: int, request: PlacementRequest, instance: InstanceUuid, *, salt: int) -> Choice:
        """Return the choice of a host that was made earlier, with the alternates of now. `salt` as of `choose`."""
        running = self._running(request)
        request = self._with_group(running.request, instance)
        try:
            shared = self._shapes.evaluate(request)
            ranking, _ = self._narrow(shared, request, running, salt)
            others = self._picking.alternates(ranking, row, request.alternates)
            scores = self._scores(request, running.weighers, [row, *others])
        except PluginFailed:
            # The host is chosen and claimed: that nobody can say which others there are does not undo it.
            return choice_of(self._table, row, [], Explanation(considered=int(np.count_nonzero(self._table.mapped))))
        found = self._multiplying.chosen(shared.considered, (), scores, [row, *others], plain=False)
        return choice_of(self._table, row, others, found)

    def explained(self, choice: Choice, request: PlacementRequest, instance: InstanceUuid) -> Explanation:
        """Return why a choice was made, as refusals are explained too: who was rejected by what, and who came near."""
        before = choice.explanation
        found = self._no_valid_host(self.for_member(request, instance), before.considered, before.stages)
        return replace(before, nearest=found.nearest, rejected=found.rejected, near=found.near)

    def capacity(self, request: PlacementRequest, keep_free: int = 0) -> Capacity:
        """Count how many more servers fit. Raises as `capacity.py`, and Conflict naming a plug-in that failed."""
        try:
            return capacity(self._table, self._pipeline, request, keep_free)
        except PluginFailed as error:
            raise Conflict(str(error)) from error

    def namespaces_read(self, request: PlacementRequest) -> set[str]:
        """Return the namespaces of other services that filters read for this request."""
        running = (entry for entry in self._pipeline.filters if explain.runs(entry, request))
        return {entry.namespace for entry in running if entry.namespace is not None}

    def might_fit(
        self, request: PlacementRequest, instance: InstanceUuid, *, unknown: Collection[str | None] = ()
    ) -> Mask:
        """Return which mapped hosts would fit for all that is known of them, if only they were up and ready.

        Of a host that is not ready nothing is known but what the operator published; `unknown` are namespaces of which
        nothing is known.
        """
        request = self.for_member(request, instance)
        hosts = HostView(self._table)
        mask = hosts.mapped.copy()
        for entry in self._pipeline.filters:
            if entry.name in _STATE_FILTERS or entry.namespace in unknown or not explain.runs(entry, request):
                continue
            asked = HostView(self._table, mask.nonzero()[0]) if entry.survivors_only else hosts
            try:
                passed = entry.passes(asked, request)
            except PluginFailed:
                continue
            mask[asked.selected] &= passed if entry.from_operator else passed | ~asked.ready
        for host in (request.spec.forced_host, request.spec.requested_host):
            if host is not None:
                mask &= hosts.named((host,))
        return mask

    def allocation(self, request: PlacementRequest, node: NodeUuid) -> Allocation | None:
        """Return which parts of a host a request gets that it fits on; None where it asks for none."""
        table, asked = self._table, request.nested
        if asked is None:
            return None
        row = table.row_of[node]
        for weigher, multiplier in self._pipeline.shared_weighers:
            if weigher.way is not None and multiplier > 0:
                return weigher.way(table, request, row)
        return table.nested.allocate(row, asked)

    def for_member(self, request: PlacementRequest, instance: InstanceUuid) -> PlacementRequest:
        """Return what filters and weighers read for one member: the request, and where the others of its group are."""
        return self._with_group(self._running(request).request, instance)

    def _running(self, request: PlacementRequest) -> _Running:
        """Return what of the pipeline concerns a request: the members of one ask one after another."""
        table, latest = self._table, self._latest
        if table.multipliers.names is not self._called:
            self._shapes.close()
            self._configure()
        elif latest is not None and latest.asked is request and latest.version == table.log.facts_noted:
            return latest
        pipeline, asked = self._pipeline, request
        if pipeline.shape_parts:
            parts = (part(table, request) for part in pipeline.shape_parts)
            request = replace(request, shape=(request.shape, *parts))
        is_forced = request.is_forced
        self._latest = _Running(
            asked=asked,
            version=table.log.facts_noted,
            request=request,
            filters=[
                entry
                for entry in pipeline.request_filters
                if entry.applies(request) and (entry.when_forced or not is_forced)
            ],
            weighers=[entry for entry in pipeline.request_weighers if entry[0].applies(request)],
        )
        return self._latest

    def _with_group(self, request: PlacementRequest, instance: InstanceUuid) -> PlacementRequest:
        group = request.spec.group
        if group is None:
            return request
        slots = self._groups.slots(group.uuid)
        spread = self._spread(request, group, slots, instance) if group.spread else ()
        return replace(request, group_nodes=member_nodes(slots, instance, group.policy), spread=spread)

    def spreads(self, request: PlacementRequest, slots: Iterable[GroupSlot], slot: GroupSlot) -> bool:
        """Tell whether the hard topology spread of a request lets `slot` join the others of its group."""
        group, row = request.spec.group, self._table.row_of.get(slot.node)
        if group is None or not any(one.hard for one in group.spread):
            return True
        try:
            found = self._spread(self._running(request).request, group, slots, slot.instance)
        except PluginFailed:
            return False
        return row is not None and all(one.allowed()[row] for one in found if one.constraint.hard)

    def still_fits(
        self, request: PlacementRequest, node: NodeUuid, usage: HostUsage, claims: tuple[Claim, ...]
    ) -> bool:
        """Tell whether limits allow one more server on a host by its record, which others may have changed."""
        record = Recorded(self._table.row_of[node], usage, claims)
        limits = ((entry, entry.still) for entry in self._limits if explain.runs(entry, request))
        return all(still(self._table, request, record) for _, still in limits if still is not None)

    def _spread(
        self, request: PlacementRequest, group: GroupRule, slots: Iterable[GroupSlot], instance: InstanceUuid
    ) -> tuple[Domains, ...]:
        shared, size = self._shapes.evaluate(request), self._table.size
        passing = Passing(
            shape=request.shape,
            judged=lambda: shared.steady[:size] == PASSED,
            fitting=lambda: shared.stage[:size] == PASSED,
            state=shared.stages(),
        )
        return self._spreading.domains(group.spread, passing, slots, instance)

    def _narrow(
        self, shared: Evaluated, request: PlacementRequest, running: _Running, salt: int
    ) -> tuple[Ranked, list[tuple[Stage, int]]]:
        """Apply what depends on more than the shape."""
        left: list[tuple[Stage, int]] = []
        filters, weighers = running.filters, running.weighers
        if not self._min_max and not weighers:
            if not filters:
                return self._shapes.ranking(shared, request, salt), left
            if (narrowed := self._narrow_by_name(shared, request, filters, salt)) is not None:
                return narrowed
        hosts = HostView(self._table)
        alive: Mask = shared.stage[: len(hosts)] == PASSED
        for entry in filters:
            if entry.named is not None:
                alive = entry.named(self._table, request).of(alive)
            elif entry.survivors_only:
                rows = alive.nonzero()[0]
                alive[rows] = entry.passes(HostView(self._table, rows), request)
            else:
                alive &= entry.passes(hosts, request)
            left.append((entry, int(np.count_nonzero(alive))))
        if self._min_max:
            return self._ranking_by_min_max(request, weighers, alive.nonzero()[0], salt), left
        if not weighers:
            return self._shapes.ranking_of(shared, request, salt, alive), left
        score = np.where(alive, self._shapes.scores(shared, request), NOBODY)
        for weigher, multiplier in weighers:
            if weigher.survivors_only:
                rows = (score > NOBODY).nonzero()[0]
                score[rows] += weighted(HostView(self._table, rows), request, weigher, multiplier)
            else:
                score += weighted(hosts, request, weigher, multiplier)
        return self._shapes.ranking_by(score, salt), left

    def _ranking_by_min_max(
        self, request: PlacementRequest, weighers: Weighers, rows: NDArray[np.intp], salt: int
    ) -> Scored:
        table = self._table
        occasional = [entry for entry in self._pipeline.occasional_weighers if entry[0].applies(request)]
        chosen = [*self._pipeline.shared_weighers, *occasional, *weighers]
        self._weighed = Weighed(table, request, chosen, rows)
        places = table.node_hash[rows] - np.uint64(salt)
        return Scored(rows, self._weighed.scores, places, table.cell)

    def _narrow_by_name(
        self, shared: Evaluated, request: PlacementRequest, filters: list[Stage], salt: int
    ) -> tuple[Ranked, list[tuple[Stage, int]]] | None:
        """Apply filters that name their rows or domains, without looking at others; None where one does not."""
        left: list[tuple[Stage, int]] = []
        narrowing = Narrowing(shared.fits, PASSED, shared.left)
        for entry in filters:
            if entry.named is not None:
                narrowing.take(entry.named(self._table, request))
            elif entry.domains is not None and (domains := entry.domains(request)) is not None:
                narrowing.stay_within(domains)
            else:
                return None
            left.append((entry, narrowing.left))
        if narrowing.only is not None:
            return self._shapes.ranking_few(shared, request, salt, sorted(narrowing.only)), left
        return self._shapes.ranking(shared, request, salt, narrowing), left

    def _stages(
        self, shared: Evaluated, request: PlacementRequest, narrowed: list[tuple[Stage, int]]
    ) -> tuple[StageCount, ...]:
        stages = shared.stages()
        return stages + explain.stage_counts(request, shared.left, narrowed) if narrowed else stages

    def _no_valid_host(self, request: PlacementRequest, considered: int, stages: tuple[StageCount, ...]) -> Explanation:
        try:
            return self._refusals.explain(request, self._shapes.evaluate(request), stages, considered)
        except PluginFailed:
            return Explanation(considered=considered, stages=stages)

    def _scores(self, request: PlacementRequest, weighers: Weighers, rows: list[int]) -> dict[str, dict[str, float]]:
        """Return what each weigher gave the best hosts, before its multiplier."""
        table = self._table
        if self._weighed is not None:
            return {table.hosts[row]: self._weighed.parts_of(row) for row in rows}
        occasional = [entry for entry in self._pipeline.occasional_weighers if entry[0].applies(request)]
        if self._shapes.is_shared and not weighers and not occasional:
            return self._shapes.parts(rows)
        hosts = HostView(table, np.array(rows, dtype=np.intp))
        scores: dict[str, dict[str, float]] = {table.hosts[row]: {} for row in rows}
        for weigher, _ in [*self._pipeline.shared_weighers, *occasional, *weighers]:
            for row, score in zip(rows, weigher.scores(hosts, request).tolist(), strict=True):
                scores[table.hosts[row]][weigher.name] = score
        return scores
