"""The story of networks on hosts: each host asks again and again what it has to bring, and mostly nothing has changed.

So a conductor remembers, for each host, the version that it has and what that depends on (`HostLook.subjects`), and
asks above the cell what has changed: once for all of its hosts, not more often than `FRESH_SECONDS` allow. Nothing is
read for a host of which nothing changed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable

import msgspec

from skep.cell_conductor.parts import Parts
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest
from skep.domain.host_networks import HostNetworkChanges
from skep.messages.to_cell_conductor import NetworksOfHost, ReadNetworks
from skep.messages.to_super_conductor import HostNetworksSeen, LookAtHostNetworks, ReadNetworkChanges

FRESH_SECONDS = 1.0
"""So old may be what is known of changes when a host asks as usual."""
LOOK_SECONDS = 3600.0
"""At least so often the whole is looked at all the same: a host that was silent for a day is no peer any more,
which no change says, and this one says that it lives."""
OTHERS_SECONDS = 60.0
"""For so long it is believed that others bring the networks."""
BY_OTHERS = NetworksOfHost(brought=False)
SAME = NetworksOfHost()


class KnownNetworks(msgspec.Struct, frozen=True):
    """What a host had to bring when it was looked at."""

    version: str
    tunnel_address: str | None
    subjects: tuple[str, ...]
    until: float
    """So long it counts, by the monotonic clock."""


class CellNetworks:
    """What the hosts of a cell have to bring, as this conductor knows it. Another knows it by itself."""

    def __init__(self, parts: Parts, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._monotonic = monotonic
        self._known: dict[str, KnownNetworks] = {}
        self._concerned: defaultdict[str, set[str]] = defaultdict(set)
        """The hosts whose networks depend on a subject."""
        self._change: int | None = None
        """The last change that is known; None: nothing was looked at yet."""
        self._followed_at = 0.0
        self._following = asyncio.Lock()
        self._others_until = 0.0

    async def read(self, message: ReadNetworks, context: RequestContext | None) -> NetworksOfHost:
        """Answer a host. Raises Unavailable while nobody answers above the cell."""
        if self._monotonic() < self._others_until:
            return BY_OTHERS
        if not message.anew and self._is_known(message):
            await self._follow()
            if self._is_known(message):
                return SAME
        return await self._look(message, context)

    def _is_known(self, message: ReadNetworks) -> bool:
        """Tell whether nothing is known to have changed of what a host has."""
        known = self._known.get(message.host)
        if known is None or self._monotonic() > known.until:
            return False
        return (known.version, known.tunnel_address) == (message.version, message.tunnel_address)

    async def _look(self, message: ReadNetworks, context: RequestContext | None) -> NetworksOfHost:
        asked = LookAtHostNetworks(
            cell=self._parts.cell.uuid,
            host=message.host,
            tunnel_address=message.tunnel_address,
            version=message.version,
            unpacks=message.unpacks,
        )
        try:
            found: HostNetworksSeen = await self._parts.ask_above(asked, context)
        except BadRequest:
            # They are upgraded first; one that was forgotten does not know the question.
            found = HostNetworksSeen(brought=False)
        if not found.brought:
            self._others_until = self._monotonic() + OTHERS_SECONDS
            return BY_OTHERS
        self._remember(message, found)
        return NetworksOfHost(networks=found.networks, packed=found.packed)

    def _remember(self, message: ReadNetworks, found: HostNetworksSeen) -> None:
        self._forget(message.host)
        if self._change is None:
            self._change = found.change
        if found.change < self._change:
            # It began before a change that was followed meanwhile and may concern it: the host asks again.
            return
        # Not all at once: a conductor that begins looks at all of its hosts.
        until = self._monotonic() + LOOK_SECONDS * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._known[message.host] = KnownNetworks(found.version, message.tunnel_address, found.subjects, until)
        for subject in found.subjects:
            self._concerned[subject].add(message.host)

    async def _follow(self) -> None:
        """Forget what changed. Raises Unavailable while nobody answers above the cell."""
        async with self._following:
            now = self._monotonic()
            if now - self._followed_at < FRESH_SECONDS or self._change is None:
                return
            since = self._change
            changes: HostNetworkChanges = await self._parts.ask_above(
                ReadNetworkChanges(cell=self._parts.cell.uuid, since=since), None
            )
            self._followed_at, self._change = now, changes.change
            if changes.many or changes.change < since:
                self._known.clear()
                self._concerned.clear()
            for subject in changes.subjects:
                for host in self._concerned.pop(subject, ()):
                    self._forget(host)

    def _forget(self, host: str) -> None:
        known = self._known.pop(host, None)
        for subject in known.subjects if known is not None else ():
            hosts = self._concerned.get(subject, set())
            hosts.discard(host)
            if not hosts:
                self._concerned.pop(subject, None)
