"""Whom each conductor hears: pages of nodes, and the beat that says which versions of them stand.

A page and the beat that stands on it are records of their own, so either may be seen first. Until all pages of a beat
are known, what the conductor said before goes on to count; of one that said nothing before, what is known counts, and
that it omits a node means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from skep.domain.ids import NodeUuid

Versions = tuple[int, ...]
_NOTHING: tuple[NodeUuid, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a conductor hears. As long as nothing changes it is the same object."""

    nodes: tuple[NodeUuid, ...]
    complete: bool
    """Whom it omits is not heard by this conductor. False: that is not known."""


@dataclass(slots=True)
class _Conductor:
    pages: dict[int, tuple[int, tuple[NodeUuid, ...]]]
    standing: Versions = ()
    """What its latest beat stands on."""
    resolved: Versions | None = None
    """What `heard` stands on; None: on nothing complete yet."""
    heard: Heard = Heard(_NOTHING, complete=False)


class HeardState(msgspec.Struct, frozen=True, array_like=True):
    """All that is known of whom one conductor hears, to be kept and taken again."""

    name: str
    pages: dict[int, tuple[int, tuple[NodeUuid, ...]]]
    standing: Versions
    resolved: Versions | None
    nodes: tuple[NodeUuid, ...]
    complete: bool


class Hearing:
    """The pages of all conductors, by a conductor's name."""

    def __init__(self) -> None:
        self._conductors: dict[str, _Conductor] = {}

    def take_beat(self, name: str, versions: Versions) -> Heard:
        """Take what a beat stands on; return whom it names."""
        conductor = self._conductors.setdefault(name, _Conductor({}))
        conductor.standing = versions
        return self._resolve(conductor)

    def take_page(self, name: str, page: int, version: int, nodes: tuple[NodeUuid, ...]) -> Heard | None:
        """Take one page; return whom the latest beat names if that changed by it."""
        conductor = self._conductors.setdefault(name, _Conductor({}))
        conductor.pages[page] = (version, nodes)
        before = conductor.heard
        after = self._resolve(conductor)
        return None if after is before else after

    def drop_page(self, name: str, page: int) -> None:
        """Forget one page."""
        conductor = self._conductors.get(name)
        if conductor is not None:
            conductor.pages.pop(page, None)
            if not conductor.pages and not conductor.standing:
                del self._conductors[name]

    def drop_beat(self, name: str) -> None:
        """Forget what the beat of a conductor said; pages that are known stay until they are dropped."""
        conductor = self._conductors.get(name)
        if conductor is not None:
            if conductor.pages:
                self._conductors[name] = _Conductor(conductor.pages)
            else:
                del self._conductors[name]

    def missing(self, name: str, versions: Versions) -> tuple[int, ...]:
        """Return the numbers of the pages that are not known in these versions."""
        conductor = self._conductors.get(name)
        known = conductor.pages if conductor is not None else {}
        return tuple(page for page, version in enumerate(versions) if page not in known or known[page][0] != version)

    def pages_of(self, name: str) -> list[int]:
        """Return the numbers of all pages that are known of a conductor."""
        conductor = self._conductors.get(name)
        return sorted(conductor.pages) if conductor is not None else []

    def states(self) -> tuple[HeardState, ...]:
        """Return all that is known, for `restore`."""
        return tuple(
            HeardState(name, dict(one.pages), one.standing, one.resolved, one.heard.nodes, one.heard.complete)
            for name, one in self._conductors.items()
        )

    def restore(self, states: Iterable[HeardState]) -> None:
        """Know what was known when `states` were returned, and nothing else."""
        self._conductors = {
            one.name: _Conductor(dict(one.pages), one.standing, one.resolved, Heard(one.nodes, one.complete))
            for one in states
        }

    @staticmethod
    def _resolve(conductor: _Conductor) -> Heard:
        if conductor.resolved is not None and conductor.resolved == conductor.standing:
            return conductor.heard
        known = conductor.pages
        wanted = list(enumerate(conductor.standing))
        complete = all(page in known and known[page][0] == version for page, version in wanted)
        if not complete and conductor.resolved is not None:
            return conductor.heard
        nodes = tuple(node for page, _ in wanted if page in known for node in known[page][1])
        if complete:
            conductor.resolved = conductor.standing
        if (nodes, complete) != (conductor.heard.nodes, conductor.heard.complete):
            conductor.heard = Heard(nodes, complete)
        return conductor.heard
