"""Looks now and then whether databases, host states and agents agree, and mends what may be mended unasked.

The same code answers `skep doctor --audit`. What is found is logged and counted in `skep_audit_differences`.
"""

from __future__ import annotations

from collections import Counter

from skep.audit.difference import MEANINGS, Difference
from skep.audit.look import look_twice
from skep.audit.repair import AUTOMATIC, repair
from skep.super_conductor.parts import Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

PAUSE_SECONDS = 2.0
"""Between the two looks: what only one of them saw was work under way."""
LOGGED = 20
"""Differences of one look that are logged each; all are counted."""


class Auditor:
    """One audit at a time; what it found stands in the metrics until the next."""

    def __init__(self, parts: Parts, *, pause: float = PAUSE_SECONDS) -> None:
        self._sources = parts.sources
        self._pause = min(pause, parts.settings.audit_seconds)
        self._settled = False
        self._differences = parts.steps.metrics.audit_differences

    async def run(self) -> bool:
        """Look twice, say what both looks found, mend claims, slots and quota."""
        if not self._settled:
            # A process that has just begun has more urgent things to do.
            self._settled = True
            return False
        look = await look_twice(self._sources, self._pause)
        for reason in look.unread:
            log.warning("the audit could not read everything", reason=reason)
        for one in look.differences[:LOGGED]:
            log.warning("difference found", kind=one.kind, subject=one.subject, evidence=one.evidence)
        mended = await repair(self._sources, look.differences, only=AUTOMATIC, dry_run=False)
        self._count(look.differences)
        counts = dict(Counter(one.kind for one in look.differences))
        log.info("audit", checked=look.checked, differences=counts, mended=sum(one.done for one in mended))
        return False

    def _count(self, found: tuple[Difference, ...]) -> None:
        counts = Counter(one.kind for one in found)
        for kind in MEANINGS:
            self._differences.labels(kind).set(counts[kind])
