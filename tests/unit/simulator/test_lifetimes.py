"""Servers of a trace that tell how long they will live."""

from __future__ import annotations

from skep.domain.clock import SECOND
from skep.domain.lifetimes import Lifetime
from skep.simulator.clouds import HostKind, MadeUp, made_up
from skep.simulator.events import Telling, Trace, TracedServer, with_lifetimes
from skep.simulator.policies import named
from skep.simulator.simulation import run
from skep.simulator.traces.flavors import Requests

REQUESTS = Requests()
PLAN = made_up(MadeUp(hosts=(HostKind(count=3, vcpus=4, memory_gib=8),)))


def server(name: str, at: int, until: int | None, vcpus: int = 1) -> TracedServer:
    ends = until * SECOND if until is not None else None
    return TracedServer(name=name, at=at * SECOND, until=ends, spec=REQUESTS.spec(vcpus, 1024))


def test_those_of_which_the_end_is_known_tell_it() -> None:
    trace = Trace(name="t", servers=(server("a", 1, 5), server("b", 2, None), server("c", 3, 3)))
    told = with_lifetimes(trace, 7, Telling())
    assert [one.spec.lifetime for one in told.servers] == [Lifetime(7 + SECOND, 7 + 5 * SECOND), None, None]
    assert with_lifetimes(trace, 0, Telling()).servers[0].spec.lifetime == Lifetime(SECOND, 5 * SECOND)
    assert with_lifetimes(trace, 0, Telling(share=0.0)) == trace


def test_some_tell_and_are_wrong() -> None:
    trace = Trace(name="t", servers=tuple(server(str(number), 0, 100) for number in range(400)))
    told = [one.spec.lifetime for one in with_lifetimes(trace, 0, Telling(share=0.25, wrong_by=2.0, seed=1)).servers]
    ends = [lifetime.end for lifetime in told if lifetime is not None]
    assert 60 < len(ends) < 140
    assert 50 * SECOND <= min(ends) < 60 * SECOND
    assert 180 * SECOND < max(ends) <= 200 * SECOND
    assert sum(end > 100 * SECOND for end in ends) > 30
    again = with_lifetimes(trace, 0, Telling(share=0.25, wrong_by=2.0, seed=1)).servers
    assert [one.spec.lifetime for one in again] == told


def test_a_host_gets_empty_sooner() -> None:
    """Best fit puts the third server beside the short one, where it fits exactly; the other host would stay anyway."""
    servers = (
        server("long", 0, 1000, 2),
        server("short", 1, 10, 3),
        server("middle", 2, 500),
        server("last", 900, 901),
    )
    trace = with_lifetimes(Trace(name="t", servers=servers), 0, Telling())
    fullest, occupied = run(trace, PLAN, named("best-fit")), run(trace, PLAN, named("lifetimes"))
    assert fullest.placed == occupied.placed == 4
    assert (fullest.least_empty_hosts, occupied.least_empty_hosts) == (1, 1)
    assert occupied.mean_empty_hosts > fullest.mean_empty_hosts + 0.4
