"""What hosts tell of themselves: each report is merged into its record, or refused by name."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.errors import TooLarge
from skep.messages.to_scheduler import HostReport, ReportAnswer
from skep.placement.hosts.bounds import no_room_for
from skep.scheduler import changes
from skep.scheduler.changes import Merged
from skep.scheduler.commits import Commits, Stored
from skep.scheduler.nonsense import LONGEST_NAME, is_counter, nonsense
from skep.scheduler.records import COMPUTE, OPERATOR
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key

REMEMBERED = 10_000
"""Nodes of which it is remembered why their report was refused, so that it is said once."""

log = structlog.get_logger("skep.scheduler")


@dataclass(frozen=True, slots=True)
class _Nonsense:
    error: str
    misplaced: bool
    """The node speaks from another cell than its own."""


_Begun = _Nonsense | Merged | asyncio.Future[Stored[Merged]]


class Reporting:
    """Takes reports; remembers what it refused."""

    def __init__(
        self, states: HostStates, commits: Commits, clock: Clock, on_refused: Callable[[], None] | None = None
    ) -> None:
        self._states = states
        self._commits = commits
        self._clock = clock
        self._on_refused = on_refused
        self._reasons: OrderedDict[str, str] = OrderedDict()

    async def take(self, reports: tuple[HostReport, ...]) -> tuple[ReportAnswer, ...]:
        """Merge each report into its record, all in one round trip; refuse nonsense by name, in one more.

        Raises Unavailable when nothing can be stored now.
        """
        begun = [self._begin(report) for report in reports]
        changed = [one for one in begun if isinstance(one, asyncio.Future)]
        await asyncio.gather(*changed, return_exceptions=True)
        return tuple(await asyncio.gather(*map(self._end, reports, begun)))

    def _begin(self, report: HostReport) -> _Begun:
        """Refuse a report, know it for a repeat, or begin to store it."""
        misplaced = _misplaced(self._states, report)
        error = misplaced or nonsense(report) or no_room_for(self._states.table, report.usage)
        if error is not None:
            return _Nonsense(error, misplaced is not None)
        key = Key(COMPUTE, report.node)
        merging = changes.merge_report(report)
        held = self._states.held(key).value
        if held is not None and (repeat := merging(held)).value is held:
            return repeat.answer
        return self._commits.change(key, merging)

    async def _end(self, report: HostReport, begun: _Begun) -> ReportAnswer:
        if isinstance(begun, _Nonsense):
            return await self._refuse(report, begun.error, misplaced=begun.misplaced)
        try:
            merged = begun if isinstance(begun, Merged) else begun.result().answer
        except TooLarge as error:
            return await self._refuse(report, f"usage: {error}", misplaced=False)
        self._reasons.pop(report.node, None)
        left = tuple(claim_key(claim) for claim in merged.claims)
        return ReportAnswer(node=report.node, claims=left, stale=merged.stale, younger=merged.younger)

    async def _refuse(self, report: HostReport, error: str, *, misplaced: bool) -> ReportAnswer:
        """Answer why; note it in the host's record if it is the host's own cell that speaks for it."""
        if self._on_refused is not None:
            self._on_refused()
        node, host = report.node[:LONGEST_NAME], report.usage.host[:LONGEST_NAME]
        if self._reasons.get(node) != error:
            self._reasons[node] = error
            if len(self._reasons) > REMEMBERED:
                self._reasons.popitem(last=False)
            log.warning("report refused", node=node, host=host, error=error)
        mapped = self._states.held(Key(OPERATOR, report.node)).value is not None
        if mapped and not misplaced and is_counter(report.incarnation) and is_counter(report.seq):
            noted = changes.note_refused(report, error, self._clock.now())
            await self._commits.change(Key(COMPUTE, report.node), noted)
        return ReportAnswer(node=report.node, error=error)


def _misplaced(states: HostStates, report: HostReport) -> str | None:
    """Return what is wrong when a node speaks from another cell than the one it is mapped to."""
    intent: HostIntent | None = states.held(Key(OPERATOR, report.node)).value
    if intent is not None and intent.cell != report.cell:
        return f"cell: the node is mapped to cell {intent.cell}, the report is from {report.cell[:LONGEST_NAME]}"
    return None


def claim_key(claim: Claim) -> ClaimKey:
    """Return the name of a claim."""
    return ClaimKey(claim.instance, claim.attempt, claim.node, claim.group)
