"""Who gets a thread for hashing next: addresses in turn, users of an address in turn; no crowd starves others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass

from skep.domain.errors import Overloaded


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody stands: an address, a user there, and whether that user is known there."""

    address: str = ""
    user: str = ""
    known: bool = True


_Waiting = deque[asyncio.Future[None]]


class _Lane:
    """Those who wait, by address and user; the first of each has the next turn."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[str, _Waiting]] = OrderedDict()
        self.counts: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def add(self, place: Place, waiter: asyncio.Future[None]) -> None:
        self._addresses.setdefault(place.address, OrderedDict()).setdefault(place.user, deque()).append(waiter)
        self.counts[place.address] = self.counts.get(place.address, 0) + 1

    def take(self) -> asyncio.Future[None]:
        """Take out who is next; the address and the user go to the end of their rows."""
        address, users = next(iter(self._addresses.items()))
        user, waiting = next(iter(users.items()))
        waiter = waiting.popleft()
        users.move_to_end(user)
        self._addresses.move_to_end(address)
        self._left(address, user)
        return waiter

    def take_last_of(self, address: str) -> asyncio.Future[None]:
        """Take out who came last of the user of an address that has most waiting."""
        users = self._addresses[address]
        user = max(users, key=lambda each: len(users[each]))
        waiter = users[user].pop()
        self._left(address, user)
        return waiter

    def remove(self, place: Place, waiter: asyncio.Future[None]) -> None:
        """Take out one who gave up, unless that has been done."""
        users = self._addresses.get(place.address)
        waiting = users.get(place.user) if users is not None else None
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            self._left(place.address, place.user)

    def _left(self, address: str, user: str) -> None:
        users = self._addresses[address]
        self.counts[address] -= 1
        if not users[user]:
            del users[user]
        if not users:
            del self._addresses[address]
            del self.counts[address]


class Turns:
    """So many run at once, so many wait. Users known at their address and all others have every second turn."""

    def __init__(self, running: int, waiting: int) -> None:
        self._room = running
        self._most_waiting = waiting
        self._lanes = {True: _Lane(), False: _Lane()}
        self._last_known = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(sum(lane.counts.values()) for lane in self._lanes.values())

    async def begin(self, place: Place) -> None:
        """Return when it is the caller's turn; `end` must follow.

        Raises Overloaded when too many wait; it meets whoever came last of the address that has most waiting.
        """
        if self._room > 0 and not self.waiting:
            self._room -= 1
            return
        if self.waiting >= self._most_waiting:
            self._turn_away(place)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane = self._lanes[place.known]
        lane.add(place, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.done() or waiter.cancelled():
                lane.remove(place, waiter)
            elif waiter.exception() is None:
                self.end()
            raise

    def end(self) -> None:
        """Give the turn to the next."""
        while self.waiting:
            known = not self._last_known if self._lanes[not self._last_known] else self._last_known
            self._last_known = known
            waiter = self._lanes[known].take()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._room += 1

    def _turn_away(self, place: Place) -> None:
        lane, address, count = max(
            ((lane, address, count) for lane in self._lanes.values() for address, count in lane.counts.items()),
            key=lambda one: one[2],
            default=(self._lanes[place.known], place.address, 0),
        )
        if count <= self._lanes[place.known].counts.get(place.address, 0) + 1:
            raise Overloaded("too many sign-ins wait; try again")
        waiter = lane.take_last_of(address)
        if not waiter.done():
            waiter.set_exception(Overloaded("too many sign-ins wait; try again"))
