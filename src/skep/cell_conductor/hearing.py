"""Whom one conductor hears: the nodes in pages that are told when they change, and who fell silent or came back."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

from skep.domain.hosts import nodes_version
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler_liveness import HeardPage

SILENT_SECONDS = 5.0
"""A host that was not heard for so long is left out of the beat."""
PAGE_NODES = 2500
"""Nodes of one page on average; the scheduler takes twice as many."""
PAGES_TOLD = 4
"""Pages in one beat: about 400 kB."""
GATHERED_LOOKS = 5
"""Hosts that fall silent one after the other are told of together, after so many looks at the latest."""


@dataclass(frozen=True, slots=True)
class News:
    """Hosts that fell silent or were heard again since the last news."""

    silent: frozenset[NodeUuid]
    heard_again: frozenset[NodeUuid]


@dataclass(slots=True)
class _Page:
    nodes: set[NodeUuid] = field(default_factory=set)
    version: int = 0


class Hearing:
    """Takes who was heard and when; knows what has to be told. Times are readings of a monotonic clock."""

    def __init__(self) -> None:
        self._at: dict[NodeUuid, float] = {}
        self._heard: frozenset[NodeUuid] = frozenset()
        self._pages: list[_Page] = []
        self._told: dict[int, int] = {}
        """Page -> the version in which it was told."""
        self._silent: set[NodeUuid] = set()
        self._fell: set[NodeUuid] = set()
        self._returned: set[NodeUuid] = set()
        self._looks = 0
        self._paginate()

    def hear(self, node: NodeUuid, now: float) -> None:
        """Note that a node was heard."""
        self._at[node] = now

    def heard_since(self, node: NodeUuid, moment: float) -> bool:
        """Tell whether a node was heard at `moment` or later."""
        return self._at.get(node, -math.inf) >= moment

    def hears(self, node: NodeUuid) -> bool:
        """Tell whether a node was heard at the latest look."""
        return node in self._heard

    @property
    def silent(self) -> int:
        """How many nodes were heard once and are silent now."""
        return len(self._silent)

    def look(self, now: float) -> News | None:
        """Judge who is heard; return what is worth a line in the log, gathered as long as more comes."""
        heard = frozenset(node for node, at in self._at.items() if now - at < SILENT_SECONDS)
        gone, come = self._heard - heard, heard - self._heard
        if gone or come:
            self._heard = heard
            self._change(gone, come)
        back = come & self._silent
        self._silent = (self._silent | gone) - come
        self._fell = (self._fell | gone) - come
        self._returned = (self._returned | back) - gone
        return self._news(more=bool(gone or back))

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of each page."""
        return tuple(page.version for page in self._pages)

    def untold(self) -> list[int]:
        """Return the numbers of the pages that were not told in their version."""
        return [number for number, page in enumerate(self._pages) if self._told.get(number) != page.version]

    def pages(self, numbers: list[int]) -> tuple[HeardPage, ...]:
        """Return some pages as they are told."""
        return tuple(
            HeardPage(page=number, version=self._pages[number].version, nodes=tuple(sorted(self._pages[number].nodes)))
            for number in numbers
        )

    def note_told(self, pages: tuple[HeardPage, ...]) -> None:
        """Note that a scheduler has taken these."""
        self._told.update((page.page, page.version) for page in pages)

    def _change(self, gone: frozenset[NodeUuid], come: frozenset[NodeUuid]) -> None:
        if len(self._heard) > PAGE_NODES * len(self._pages):
            self._paginate()
            return
        changed = set()
        for node in gone:
            page = self._page_of(node)
            page.nodes.discard(node)
            changed.add(id(page))
        for node in come:
            page = self._page_of(node)
            page.nodes.add(node)
            changed.add(id(page))
        for page in self._pages:
            if id(page) in changed:
                page.version = nodes_version(page.nodes)

    def _paginate(self) -> None:
        """Spread all nodes over twice as many pages as before, until they are enough."""
        number = max(1, len(self._pages))
        while len(self._heard) > PAGE_NODES * number:
            number *= 2
        self._pages = [_Page() for _ in range(number)]
        for node in self._heard:
            self._page_of(node).nodes.add(node)
        for page in self._pages:
            page.version = nodes_version(page.nodes)

    def _page_of(self, node: NodeUuid) -> _Page:
        return self._pages[zlib.crc32(node.encode()) % len(self._pages)]

    def _news(self, *, more: bool) -> News | None:
        if not (self._fell or self._returned):
            self._looks = 0
            return None
        self._looks += 1
        if more and self._looks < GATHERED_LOOKS:
            return None
        news = News(frozenset(self._fell), frozenset(self._returned))
        self._fell, self._returned, self._looks = set(), set(), 0
        return news
