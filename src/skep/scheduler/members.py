"""The schedulers that live: each writes a small record once a second, and all read of each other's change.

The record is also how a scheduler notices soon that the backend went back in time: nobody else writes it, so its
generation is always the one that its writer knows.
"""

from __future__ import annotations

from dataclasses import dataclass

BEAT_SECONDS = 1.0
"""How often a scheduler writes that it lives."""
LAPSE_SECONDS = 4.0
"""A scheduler whose record has not changed for so long takes no requests; its hosts fall to the others."""
FORGET_SECONDS = 60.0
"""A record that has not changed for so long is that of a scheduler which is gone, and is removed."""


@dataclass(slots=True)
class _Member:
    changed: float | None
    """The monotonic clock when its record was seen to change; None: its age is not known (found in a snapshot)."""
    found: float | None = None
    """The monotonic clock when one of unknown age was first looked at."""


class Members:
    """The schedulers of which this one knows, by run. Times are seconds of its own monotonic clock."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def take(self, run: str, now: float | None) -> None:
        """Take a scheduler's record. `now`: when it changed; None where its age is not known."""
        self._members[run] = _Member(now)

    def drop(self, run: str) -> None:
        """Forget a scheduler that is gone."""
        self._members.pop(run, None)

    def living(self, now: float) -> tuple[str, ...]:
        """Return the schedulers whose record changed lately."""
        return tuple(
            run
            for run, member in self._members.items()
            if member.changed is not None and now - member.changed <= LAPSE_SECONDS
        )

    def age(self, run: str, now: float) -> float | None:
        """Return how long ago a scheduler's record changed; None where that is not known."""
        member = self._members.get(run)
        return None if member is None or member.changed is None else now - member.changed

    def gone(self, now: float) -> list[str]:
        """Return the schedulers that have been silent for so long that they are no more."""
        silent = []
        for run, member in self._members.items():
            if member.changed is None and member.found is None:
                member.found = now
            since = member.changed if member.changed is not None else member.found
            if since is not None and now - since > FORGET_SECONDS:
                silent.append(run)
        return silent
