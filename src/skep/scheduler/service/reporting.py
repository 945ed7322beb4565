"""What hosts and cells tell of themselves: reports and beats."""

from __future__ import annotations

import asyncio

import structlog

from skep.domain.claims import Claim, ClaimKey
from skep.messages.to_scheduler import Beat, HostReport, HostWish, ReportAnswer
from skep.scheduler.service import changes
from skep.scheduler.service.commits import Commits
from skep.scheduler.service.nonsense import nonsense
from skep.scheduler.service.records import COMPUTE, OPERATOR, beat_key
from skep.scheduler.service.states import HostStates
from skep.synchronizer.base import Key

log = structlog.get_logger("skep.scheduler")


async def take_reports(
    states: HostStates, commits: Commits, reports: tuple[HostReport, ...]
) -> tuple[ReportAnswer, ...]:
    """Merge each report into its record, all in one round trip; refuse nonsense by name."""
    return tuple(await asyncio.gather(*(_take_report(states, commits, report) for report in reports)))


async def _take_report(states: HostStates, commits: Commits, report: HostReport) -> ReportAnswer:
    error = nonsense(report) or _misplaced(states, report)
    if error is not None:
        log.warning("report refused", node=report.node, host=report.usage.host, error=error)
        return ReportAnswer(node=report.node, error=error)
    stored = await commits.change(Key(COMPUTE, report.node), changes.merge_report(report))
    left = tuple(claim_key(claim) for claim in stored.answer.claims)
    return ReportAnswer(node=report.node, claims=left, stale=stored.answer.stale)


def _misplaced(states: HostStates, report: HostReport) -> str | None:
    """Return what is wrong when a node speaks from another cell than the one it is mapped to."""
    wish: HostWish | None = states.held(Key(OPERATOR, report.node)).value
    if wish is not None and wish.cell != report.cell:
        return f"cell: the node is mapped to cell {wish.cell}, the report came from {report.cell}"
    return None


def claim_key(claim: Claim) -> ClaimKey:
    """Return the name of a claim."""
    return ClaimKey(claim.instance, claim.attempt, claim.node, claim.group)


async def take_beat(states: HostStates, commits: Commits, beat: Beat, at: int, now: float) -> None:
    """Store whom a conductor of a cell heard, and remove the beats of its conductors that are no more.

    `at`: now, microseconds since the epoch; `now`: the reading of the monotonic clock.
    """
    beating = changes.set_beat(beat.heard, at, listening=beat.listening)
    await commits.change(beat_key(beat.cell, beat.conductor), beating)
    gone = states.conductors_gone(beat.cell, now)
    await asyncio.gather(
        *(commits.change(beat_key(beat.cell, conductor), changes.set_wish(None)) for conductor in gone)
    )
