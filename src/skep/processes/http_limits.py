"""When a connection has had its time, and which connections make room for a new one: decided without any I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from skep.config.http import HttpSettings

LINGER_SECONDS = 5.0
"""How long a client may go on sending what is not read any more, so that it sees its answer."""

KeyT = TypeVar("KeyT", bound=Hashable)


class ConnectionStage(IntEnum):
    """What a connection waits for. The lower, the sooner it makes room for another; `SERVED` never does."""

    ENDING = 0
    """It was refused or closed, and its client still sends or has not taken all."""
    IDLE = 1
    """An answered client may send its next request."""
    SILENT = 2
    """The client has not said anything yet."""
    HEAD = 3
    """A request has begun, its headers have not ended."""
    LEFTOVER = 4
    """The request is answered, the rest of its body still comes."""
    BODY = 5
    """The application waits for the client's body."""
    SERVED = 6
    """It is the service's turn."""


@dataclass(frozen=True, slots=True)
class ConnectionLook:
    """A connection at one look: what it waits for, of which of its requests, and how much body that has by now."""

    stage: ConnectionStage
    request: int
    received: int


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered of a connection between two looks."""

    seen: ConnectionLook
    since: float
    """When it was first seen at this stage of this request."""
    received_before: int
    heard: float
    """When more of the body was last seen."""


def watch(before: Watch | None, seen: ConnectionLook, now: float) -> Watch:
    """Return what to remember of a connection after a look at it."""
    if before is None or (before.seen.stage, before.seen.request) != (seen.stage, seen.request):
        return Watch(seen, now, seen.received, now)
    heard = now if seen.received > before.seen.received else before.heard
    return Watch(seen, before.since, before.received_before, heard)


def deadline(one: Watch, limits: HttpSettings) -> float | None:
    """Return when the client's time is over; None while it is not the client's turn."""
    stage = one.seen.stage
    if stage is ConnectionStage.SERVED:
        return None
    if stage is ConnectionStage.BODY:
        won = (one.seen.received - one.received_before) / limits.body_min_rate
        return min(one.heard, one.since + won) + limits.body_timeout
    if stage is ConnectionStage.IDLE:
        return one.since + limits.idle_timeout
    if stage in (ConnectionStage.SILENT, ConnectionStage.HEAD):
        return one.since + limits.header_timeout
    return one.since + LINGER_SECONDS


def look_seconds(limits: HttpSettings) -> float:
    """Return the time between two looks: short beside the shortest limit."""
    shortest = min(limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.send_timeout)
    return min(1.0, shortest / 4)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[KeyT]):
    """A connection that may have to make room."""

    key: KeyT
    address: str
    stage: ConnectionStage
    since: float


def make_room(candidates: Iterable[Candidate[KeyT]], count: int) -> list[KeyT]:
    """Return which connections to end for new ones, at most `count`; none whose request is being served.

    The address with the most connections gives first, so that a flood from one place pushes out itself. Of its
    connections go those that lose least, of these the oldest.
    """
    waiting: dict[str, list[Candidate[KeyT]]] = {}
    held: Counter[str] = Counter()
    for one in candidates:
        held[one.address] += 1
        if one.stage is not ConnectionStage.SERVED:
            waiting.setdefault(one.address, []).append(one)
    for queue in waiting.values():
        queue.sort(key=lambda one: (one.stage, one.since), reverse=True)
    ended: list[KeyT] = []
    while waiting and len(ended) < count:
        address = max(waiting, key=lambda each: held[each])
        ended.append(waiting[address].pop().key)
        held[address] -= 1
        if not waiting[address]:
            del waiting[address]
    return ended
