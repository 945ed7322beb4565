"""What happens in a simulation: servers come and go, hosts fail and come back. In the order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from skep.domain.lifetimes import Lifetime
from skep.domain.nested.wanted import Wanted
from skep.domain.request_specs import RequestSpec


class Server(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One server of a trace. Times are microseconds, from the trace's own beginning."""

    name: str
    at: int
    """When it is asked for."""
    until: int | None = None
    """When it goes; None: it stays."""
    spec: RequestSpec


class HostChange(msgspec.Struct, frozen=True, kw_only=True):
    """A host fails, or comes back. Servers that are on it stay where they are."""

    at: int
    host: str
    up: bool


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be placed."""

    name: str
    servers: tuple[Server, ...]
    changes: tuple[HostChange, ...] = ()
    units: dict[str, int] = {}
    """Where amounts are counted in parts of a resource class's unit: how many make one. Capacities are multiplied."""
    begin: int = 0
    """When it began, microseconds since the epoch; 0: nobody knows."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A server goes."""

    at: int
    server: str


Event = Server | Departure | HostChange
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


def with_lifetimes(trace: Trace, begin: int) -> Trace:
    """Return the trace with servers that tell how long they will live, all those of which it is known.

    `begin`: when the trace begins, microseconds since the epoch, to be compared with what hosts expect.
    """
    servers = (
        server
        if server.until is None or server.until <= server.at
        else msgspec.structs.replace(
            server,
            spec=msgspec.structs.replace(server.spec, lifetime=Lifetime(begin + server.at, begin + server.until)),
        )
        for server in trace.servers
    )
    return msgspec.structs.replace(trace, servers=tuple(servers))


def requests_of(servers: Iterable[Server], most: int) -> list[AskedFor]:
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


def _specs(servers: Iterable[Server]) -> list[tuple[RequestSpec, int]]:
    """Return the requests and how many servers share each."""
    counts = Counter(id(server.spec) for server in servers)
    specs = {id(server.spec): server.spec for server in servers}
    return [(spec, counts[number]) for number, spec in specs.items()]
