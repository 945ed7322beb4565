"""`GET /audit`: two looks at everything, and what both of them found."""

from __future__ import annotations

from collections import Counter
from typing import Any

from skep.admin.requests import AdminRequest
from skep.audit.difference import MEANINGS, Look
from skep.audit.look import look_twice
from skep.domain.clock import isoformat

SHOWN = 100
"""Differences of one kind that are listed; all are counted."""


async def show(request: AdminRequest) -> Any:
    """Answer the differences that two looks agree on."""
    request.only_query()
    services = request.services
    look = await look_twice(services.sources, services.audit_pause)
    counts = Counter(difference.kind for difference in look.differences)
    return {
        "audit": {
            "checked_at": isoformat(services.clock.now()),
            "checked": look.checked,
            "unread": list(look.unread),
            "counts": dict(sorted(counts.items())),
            "differences": _listed(look),
        }
    }


def _listed(look: Look) -> list[dict[str, Any]]:
    listed: Counter[str] = Counter()
    shown = []
    for difference in sorted(look.differences, key=lambda one: one.key):
        listed[difference.kind] += 1
        if listed[difference.kind] <= SHOWN:
            shown.append(
                {
                    "kind": difference.kind,
                    "meaning": MEANINGS[difference.kind],
                    "subject": difference.subject,
                    "evidence": difference.evidence,
                }
            )
    return shown
