"""What happens in a simulation: servers come and go, hosts fail and come back. In the order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from skep.domain.clock import SECOND
from skep.domain.lifetimes import MOST_SECONDS, Lifetime
from skep.domain.nested.wanted import Wanted
from skep.domain.request_specs import RequestSpec
from skep.placement.hosts.host_columns import stable_hash


class TracedServer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One server of a trace. Times are microseconds, from the trace's own beginning."""

    name: str
    at: int
    """When it is asked for."""
    until: int | None = None
    """When it goes; None: it stays."""
    spec: RequestSpec


class HostEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A host fails, or comes back. Servers that are on it stay where they are."""

    at: int
    host: str
    up: bool


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be placed."""

    name: str
    servers: tuple[TracedServer, ...]
    changes: tuple[HostEvent, ...] = ()
    units: dict[str, int] = {}
    """Where amounts are counted in parts of a resource class's unit: how many make one. Capacities are multiplied."""
    begin: int = 0
    """When it began, microseconds since the epoch; 0: nobody knows."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A server goes."""

    at: int
    server: str


Event = TracedServer | Departure | HostEvent
_DEPARTURE, _CHANGE, _ARRIVAL = range(3)


def in_order(trace: Trace) -> list[Event]:
    """Return all events by time. Of the same moment: departures, changes of hosts, arrivals in the trace's order.

    A server that is to go before it comes, or at that moment, never comes.
    """
    events: list[tuple[int, int, int, Event]] = []
    number = 0
    for server in trace.servers:
        if server.until is not None and server.until <= server.at:
            continue
        number += 1
        events.append((server.at, _ARRIVAL, number, server))
        if server.until is not None:
            events.append((server.until, _DEPARTURE, number, Departure(server.until, server.name)))
    events.extend((change.at, _CHANGE, number, change) for number, change in enumerate(trace.changes))
    events.sort(key=lambda event: event[:3])
    return [event for *_, event in events]


def first_servers(trace: Trace, most: int) -> Trace:
    """Return the trace with at most so many servers, the first that are asked for."""
    chosen = sorted(trace.servers, key=lambda server: server.at)[:most]
    return msgspec.structs.replace(trace, servers=tuple(chosen))


class AskedFor(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request."""

    resources: dict[str, int]
    nested: Wanted | None = None
    share: float
    """Of all requests that are looked at."""


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """How well users tell how long their servers will live."""

    share: float = 1.0
    """Of the servers of which it is known, who tell."""
    wrong_by: float = 1.0
    """The factor by which what they tell is at most too long or too short: evenly so on a scale of factors."""
    seed: int = 0


def with_lifetimes(trace: Trace, begin: int, telling: Telling) -> Trace:
    """Return the trace with servers that tell how long they will live, those of which it is known.

    `begin`: when the trace begins, microseconds since the epoch, to be compared with what hosts expect.
    """
    return msgspec.structs.replace(trace, servers=tuple(_told(server, begin, telling) for server in trace.servers))


def _told(server: TracedServer, begin: int, telling: Telling) -> TracedServer:
    if server.until is None or server.until <= server.at or _part(server, "tells", telling) >= telling.share:
        return server
    factor = telling.wrong_by ** (2 * _part(server, "wrong", telling) - 1)
    start = begin + server.at
    length = min(max(1, round((server.until - server.at) * factor)), MOST_SECONDS * SECOND)
    lifetime = Lifetime(start, start + length)
    return msgspec.structs.replace(server, spec=msgspec.structs.replace(server.spec, lifetime=lifetime))


def _part(server: TracedServer, about: str, telling: Telling) -> float:
    """Return a number from 0 to below 1 that depends on the server's name and the seed alone."""
    return (stable_hash(f"{telling.seed}/{about}/{server.name}") >> 11) / 2**53


def requests_of(servers: Iterable[TracedServer], most: int) -> list[AskedFor]:
    """Return what is asked for most often: at most so many kinds, whose shares add up to 1."""
    counts: Counter[tuple[tuple[tuple[str, int], ...], Wanted | None]] = Counter()
    for spec, count in _specs(servers):
        nested = spec.wanted()
        counts[tuple(sorted(spec.resources().items())), nested] += count
    chosen = sorted(counts.items(), key=lambda item: (-item[1], repr(item[0])))[:most]
    total = sum(count for _, count in chosen)
    return [
        AskedFor(resources=dict(resources), nested=nested, share=count / total) for (resources, nested), count in chosen
    ]


def _specs(servers: Iterable[TracedServer]) -> list[tuple[RequestSpec, int]]:
    """Return the requests and how many servers share each."""
    counts = Counter(id(server.spec) for server in servers)
    specs = {id(server.spec): server.spec for server in servers}
    return [(spec, counts[number]) for number, spec in specs.items()]
