"""Gives up claims and group slots of attempts that are over; what the scheduler does not take now is offered again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from skep.cell_conductor.parts import Parts
from skep.domain.claims import ClaimKey
from skep.domain.errors import SkepError
from skep.messages.to_scheduler import ReleaseClaims
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import scheduler_for

log = get_logger(__name__)

RELEASED = 2000
"""Claims that are released with one message."""


class Releases:
    """Releases in the order they came, many in one call."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waiting: dict[ClaimKey, None] = {}
        self.loop = Loop("releases", self._run, every=parts.settings.resend_seconds)

    def add(self, keys: Iterable[ClaimKey]) -> None:
        """Release these soon."""
        before = len(self._waiting)
        self._waiting.update(dict.fromkeys(keys))
        if len(self._waiting) > before:
            self.loop.nudge()

    async def _run(self) -> bool:
        keys = tuple(itertools.islice(self._waiting, RELEASED))
        if not keys:
            return False
        try:
            await self._parts.above.call(scheduler_for(self._parts.cell.uuid), ReleaseClaims(claims=keys))
        except SkepError as error:
            log.warning("claims not released yet", claims=len(keys), error=str(error))
            return False
        for key in keys:
            self._waiting.pop(key, None)
        return bool(self._waiting)
