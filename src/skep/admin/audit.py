"""`GET /audit`: two looks at everything, and what both of them found. `POST /audit/repair`: what is done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from skep.admin.answers import AnsweredAudit, AnsweredRepair, ShownDifference, SummaryOfAudit
from skep.admin.requests import AdminRequest, operation, takes
from skep.audit.difference import MEANINGS, Kind, Look
from skep.audit.look import look_twice
from skep.audit.repair import repair
from skep.domain.clock import isoformat

SHOWN = 100
"""Differences of one kind that are listed; all are counted."""


@operation()
async def show(request: AdminRequest) -> AnsweredAudit:
    """Answer the differences that two looks agree on."""
    services = request.services
    look = await look_twice(services.sources, services.audit_pause)
    return {"audit": {**_summary(look, services.clock.now()), "differences": _listed(look)}}


class RepairBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a repair."""

    dry_run: bool = True


@takes(RepairBody)
async def mend(request: AdminRequest, body: RepairBody) -> AnsweredRepair:
    """Answer what was done about each difference; with `dry_run` (the default) what would be."""
    services = request.services
    look = await look_twice(services.sources, services.audit_pause)
    mended = await repair(services.sources, look.differences, dry_run=body.dry_run)
    outcomes = {one.difference.key: one.outcome for one in mended}
    return {
        "repair": {
            **_summary(look, services.clock.now()),
            "dry_run": body.dry_run,
            "mended": sum(one.done for one in mended),
            "differences": _listed(look, outcomes),
        }
    }


def _summary(look: Look, now: int) -> SummaryOfAudit:
    counts = Counter(difference.kind for difference in look.differences)
    return {
        "checked_at": isoformat(now),
        "checked": look.checked,
        "unread": list(look.unread),
        "counts": dict(sorted(counts.items())),
    }


def _listed(look: Look, outcomes: Mapping[Any, str] | None = None) -> list[ShownDifference]:
    listed: Counter[Kind] = Counter()
    shown: list[ShownDifference] = []
    for difference in sorted(look.differences, key=lambda one: one.key):
        listed[difference.kind] += 1
        if listed[difference.kind] <= SHOWN:
            one: ShownDifference = {
                "kind": difference.kind,
                "meaning": MEANINGS[difference.kind],
                "subject": difference.subject,
                "evidence": difference.evidence,
            }
            if outcomes is not None:
                one["outcome"] = outcomes[difference.key]
            shown.append(one)
    return shown
