"""Frees claims and group slots that nothing names: what a lost answer, a failed release or a crash left behind.

One pass asks the scheduler what is held, then the databases what is named (`skep.audit.holdings`). Freed is what was
held in three passes and unnamed in the latter two, so that builds under way cost nothing here.
"""

from __future__ import annotations

import time

from skep.audit.holdings import Unnamed, unnamed
from skep.domain.claims import ClaimKey
from skep.messages.to_scheduler import Holding, ReleaseClaims, ReleaseSlots
from skep.super_conductor.parts import Parts
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

FREED = 2000
"""Claims or slots that are freed with one message."""

SHARE = 0.02
"""Of one's time that passes may take: after a long one (many groups with many members) follows a long rest."""

LONGEST_REST = 10.0
"""Seconds. A pass may have been long because it waited for a scheduler that was halted: that cost nothing, and what
nothing names is not to hold its room for minutes."""


class Sweeper:
    """Remembers between passes what was held and what was unnamed."""

    def __init__(self, parts: Parts) -> None:
        self._sources = parts.sources
        self._rest_until = 0.0
        self._epoch = ""
        self._claims = Suspects()
        self._slots = Suspects()

    async def run(self) -> bool:
        """Do one pass."""
        began = time.monotonic()
        if began < self._rest_until:
            return False
        known = await self._sources.claims()
        if known.epoch != self._epoch:
            self._epoch, self._claims, self._slots = known.epoch, Suspects(), Suspects()
        claims = self._claims.twice(await unnamed(self._sources, self._claims.standing(known.claims)))
        slots = self._slots.twice(await unnamed(self._sources, self._slots.standing(known.slots)))
        await self._free(claims, slots)
        ended = time.monotonic()
        self._rest_until = ended + min(LONGEST_REST, (ended - began) * (1 / SHARE - 1))
        return False

    async def _free(self, claims: tuple[ClaimKey, ...], slots: tuple[ClaimKey, ...]) -> None:
        transport = self._sources.transport
        for start in range(0, len(claims), FREED):
            await transport.call(SCHEDULER, ReleaseClaims(claims=claims[start : start + FREED]))
        for start in range(0, len(slots), FREED):
            await transport.call(SCHEDULER, ReleaseSlots(slots=slots[start : start + FREED]))
        for kind, keys in (("claim", claims), ("slot", slots)):
            for key in keys:
                log.warning(
                    "orphan freed",
                    what=kind,
                    instance=key.instance,
                    attempt=key.attempt,
                    node=key.node,
                )


class Suspects:
    """What earlier passes saw: all that was held, and what of it was unnamed."""

    def __init__(self) -> None:
        self._held: set[ClaimKey] = set()
        self._unnamed: set[ClaimKey] = set()

    def standing(self, now: tuple[Holding, ...]) -> list[Holding]:
        """Return what was held in the pass before too; remember all that is held now."""
        before, self._held = self._held, {one.key for one in now}
        return [one for one in now if one.key in before]

    def twice(self, now: list[Unnamed]) -> tuple[ClaimKey, ...]:
        """Return what was unnamed in the pass before too; remember all that is unnamed now."""
        before, self._unnamed = self._unnamed, {one.holding.key for one in now}
        return tuple(sorted(self._unnamed & before, key=lambda key: (key.instance, key.attempt, key.node)))
