"""What is asked for lately: kinds of requests and how often they come, learned from the decisions themselves.

Bounded, and without a clock: every so many decisions what came before counts for half. So the same decisions in the
same order give the same mix, and a decision log can repeat what follows from it.
"""

from __future__ import annotations

import msgspec

from skep.domain.nested.wanted import Wanted
from skep.domain.resources import Resources
from skep.placement.hosts.columns import Amounts

MOST_KINDS = 32
"""Kinds that are published: the most frequent ones."""
_MOST_COUNTED = 256
"""Kinds that are counted. The rarest are forgotten."""
_FIRST, _LAST = 8, 1024
"""The mix is published after so many decisions, then each time twice as many have come, then after each so many."""


class AskedKind(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that ask for the same."""

    resources: tuple[tuple[str, int], ...]
    nested: Wanted | None = None


class PublishedMix(msgspec.Struct, frozen=True, kw_only=True):
    """A mix that stays as it is until the next is published."""

    version: int = 0
    """Which one it is; 0: nothing is known yet."""
    kinds: tuple[tuple[AskedKind, float], ...] = ()
    """With how often each is asked for."""
    mean: dict[str, float] = {}
    """What a host has in the mean of each resource class, of those that have any."""


class MixState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a mix has learned."""

    published: PublishedMix = PublishedMix()
    counted: tuple[tuple[AskedKind, float], ...] = ()
    noted: int = 0


class Mix:
    """Counts requests and publishes how often which come."""

    __slots__ = ("_counts", "_latest", "_noted", "learns", "published")

    def __init__(self) -> None:
        self.learns = False
        """Whether anybody wants to know; else nothing is counted."""
        self.published = PublishedMix()
        self._counts: dict[AskedKind, float] = {}
        self._noted = 0
        self._latest: object = None

    def note(self, request: object, resources: Resources, nested: Wanted | None, columns: dict[str, Amounts]) -> None:
        """Count one server that is asked for. `request`: what all members of one request share.

        Nothing is published between members of one request, so that they are judged alike.
        """
        if request is not self._latest:
            self._latest = request
            if self._noted >= self._wanted:
                self._publish(columns)
        kind = AskedKind(resources=tuple(sorted(resources.items())), nested=nested)
        self._counts[kind] = self._counts.get(kind, 0.0) + 1.0
        self._noted += 1

    @property
    def _wanted(self) -> int:
        return int(min(_FIRST << min(self.published.version, 20), _LAST))

    def _publish(self, columns: dict[str, Amounts]) -> None:
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0].resources))
        kinds = tuple(ordered[:MOST_KINDS])
        classes = {name for kind, _ in kinds for name, _ in kind.resources}
        mean = {name: _mean(columns[name]) for name in sorted(classes) if name in columns}
        self.published = PublishedMix(version=self.published.version + 1, kinds=kinds, mean=mean)
        self._counts = {kind: count / 2 for kind, count in ordered[:_MOST_COUNTED]}
        self._noted = 0

    def forget_request(self) -> None:
        """Take whatever comes next for another request: what is written down does not say which one was the latest."""
        self._latest = None

    def state(self) -> MixState:
        """Return all that was learned."""
        return MixState(published=self.published, counted=tuple(self._counts.items()), noted=self._noted)

    def restore(self, state: MixState) -> None:
        """Know what was learned."""
        self.published, self._counts, self._noted = state.published, dict(state.counted), state.noted


def _mean(amounts: Amounts) -> float:
    having = int((amounts.capacity > 0).sum())
    return float(amounts.capacity.sum()) / having if having else 0.0
