"""What the benchmark does with a scheduler: fill, report, claim, offer, compare."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence

import msgspec

from skep.cli.benchmarks.sync.hosts import CELL, PLACES, SPEC, intent, node_of, report, stamp
from skep.cli.benchmarks.sync.scheduler import BenchScheduler, in_batches
from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.cells import Cell
from skep.domain.claims import ClaimKey
from skep.domain.errors import Misconfigured, Unavailable
from skep.domain.ids import InstanceUuid, NodeUuid, new_uuid
from skep.messages.to_scheduler import (
    AssertClaims,
    GetHostStates,
    Member,
    PublishOperatorState,
    ReleaseClaims,
    SelectDestinations,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.scheduler.records import COMPUTE
from skep.synchronizer.base import Key

BATCH = 100
"""Reports in one message: what a cell gathers in a tick."""
PROBES = 20
"""Hosts of which every reader notes how old a report is when it is seen."""
PROBE_SECONDS = 0.001
SEVERAL = 4
"""Messages with reports under way at once."""
READY_SECONDS = 120.0
COMPARISONS = 25


class OfferedSingles(msgspec.Struct, frozen=True, kw_only=True):
    """What came of requests for single servers."""

    requests: int = 0
    placed: int = 0
    refused: int = 0
    not_ready: int = 0
    failed: int = 0
    conflicts: int = 0
    """Requests that met a refused compare-and-swap."""
    seconds: float = 0.0
    latencies_ms: tuple[float, ...] = ()


async def fill(scheduler: BenchScheduler, hosts: int, servers: int) -> None:
    """Map all hosts, and have each report that it runs so many servers."""
    await scheduler.ask(
        PublishOperatorState(
            hosts=tuple(intent(number) for number in range(hosts)),
            aggregates=(),
            cells=(Cell(uuid=CELL, name="bench"),),
        )
    )
    for batch in in_batches(range(hosts), BATCH * 5):
        await scheduler.ask(UpdateHostState(reports=tuple(report(number, servers) for number in batch)))
    reply = await beat(scheduler, hosts)
    await scheduler.ask(AssertClaims(cell=CELL, epoch=reply, claims=()))


async def beat(scheduler: BenchScheduler, hosts: int) -> str:
    """Say that all hosts are heard; return the epoch."""
    heard = tuple(node_of(number) for number in range(hosts))
    return (await scheduler.ask(Beat(cell=CELL, heard=heard, conductor="bench"))).epoch


async def wait_ready(scheduler: BenchScheduler, hosts: int) -> None:
    """Wait until the scheduler knows that the last host is up. Raises Misconfigured when it does not in time."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        reply = await scheduler.ask(GetHostStates(nodes=(node_of(0), node_of(hosts - 1))))
        if len(reply.hosts) == min(hosts, 2) and all(host.up for host in reply.hosts):
            return
        await asyncio.sleep(0.05)
    raise Misconfigured("the hosts of the benchmark did not start")


async def keep_beating(scheduler: BenchScheduler, hosts: int) -> None:
    """Beat each second until cancelled."""
    while True:
        await asyncio.sleep(1)
        await beat(scheduler, hosts)


async def send_reports(scheduler: BenchScheduler, hosts: int, servers: int, *, rate: float, seconds: float) -> float:
    """Have hosts report at a rate, their state changed each time; return how many a second were taken."""
    began = time.monotonic()
    order = itertools.cycle(in_batches(_shuffled(hosts), BATCH))
    under_way: set[asyncio.Task[None]] = set()
    sent = 0

    async def send(numbers: Sequence[int], used: int) -> None:
        await scheduler.ask(UpdateHostState(reports=tuple(report(number, used) for number in numbers)))

    while (now := time.monotonic()) < began + seconds:
        due = began + sent / rate
        if due > now:
            await asyncio.sleep(due - now)
        if len(under_way) >= SEVERAL:
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        numbers = next(order)
        # Each round through the hosts they run another number of servers, so that every report changes something.
        under_way.add(asyncio.create_task(send(numbers, servers - 1 - (sent // hosts) % 2)))
        sent += len(numbers)
    await asyncio.gather(*under_way)
    return sent / (time.monotonic() - began)


async def watch(scheduler: BenchScheduler, hosts: int, seconds: float) -> list[float]:
    """Return, in milliseconds, how old the reports of some hosts were when this scheduler held them.

    Each report bears the time when it was made.
    """
    probes = {node_of(number * (hosts // min(PROBES, hosts))): 0 for number in range(min(PROBES, hosts))}
    ages: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = stamp()
        for node, known in probes.items():
            held = scheduler.service.states.held(Key(COMPUTE, node)).value
            seq = held.report.seq if held is not None and held.report is not None else 0
            if seq != known:
                probes[node] = seq
                if known:
                    ages.append((now - seq) / 1000)
        await asyncio.sleep(PROBE_SECONDS)
    return ages


async def claim(scheduler: BenchScheduler, *, in_flight: int, seconds: float) -> OfferedSingles:
    """Have single servers placed as fast as it goes, so many at once; each is given back in the next moment."""
    end = time.monotonic() + seconds
    placed: list[ClaimKey] = []
    counts = [0, 0, 0]
    latencies: list[float] = []

    async def one_after_another() -> None:
        while time.monotonic() < end:
            began = time.monotonic()
            outcome = await _select(scheduler)
            latencies.append((time.monotonic() - began) * 1000)
            if isinstance(outcome, ClaimKey):
                counts[0] += 1
                placed.append(outcome)
            else:
                counts[1 if outcome == "refused" else 2] += 1

    async def give_back() -> None:
        while time.monotonic() < end or placed:
            gone, placed[:] = tuple(placed[:500]), placed[500:]
            if gone:
                await scheduler.ask(ReleaseClaims(claims=gone))
            else:
                await asyncio.sleep(0.01)

    began = time.monotonic()
    workers = [asyncio.create_task(one_after_another()) for _ in range(in_flight)]
    giving = asyncio.create_task(give_back())
    await asyncio.gather(*workers)
    took = time.monotonic() - began
    await giving
    return OfferedSingles(
        requests=sum(counts),
        placed=counts[0],
        refused=counts[1],
        not_ready=counts[2],
        conflicts=scheduler.conflicts.met,
        seconds=took,
        latencies_ms=tuple(latencies),
    )


async def offer(scheduler: BenchScheduler, *, rate: float, seconds: float, hold: float, seed: int) -> OfferedSingles:
    """Ask for single servers at random moments, at a mean rate; each is deleted `hold` seconds later."""
    dice = random.Random(seed)  # noqa: S311 - load, not secrets
    counts = {"placed": 0, "refused": 0, "not_ready": 0, "failed": 0}
    before = scheduler.conflicts.met
    latencies: list[float] = []
    stories: set[asyncio.Task[None]] = set()

    async def story() -> None:
        asked = time.monotonic()
        outcome = await _select(scheduler)
        latencies.append((time.monotonic() - asked) * 1000)
        if not isinstance(outcome, ClaimKey):
            counts[outcome] += 1
            return
        counts["placed"] += 1
        await asyncio.sleep(hold)
        await scheduler.ask(ReleaseClaims(claims=(outcome,)))

    began = time.monotonic()
    due = began
    while due < began + seconds:
        due += dice.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(story())
        stories.add(task)
        task.add_done_callback(stories.discard)
    while stories:
        await asyncio.wait(tuple(stories))
    return OfferedSingles(
        requests=sum(counts.values()),
        **counts,
        conflicts=scheduler.conflicts.met - before,
        seconds=time.monotonic() - began,
        latencies_ms=tuple(latencies),
    )


class HeldComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler holds against what the backend has."""

    differences: int
    overbooked: int
    """Hosts on which more is used and claimed than fits."""


async def compare(scheduler: BenchScheduler, hosts: int) -> HeldComparison:
    """Compare the scheduler's memory with what its backend has, and count overbooked hosts.

    What others wrote a moment ago is on its way, so records that differ are looked at again for a while.
    """
    differences = -1
    for _ in range(COMPARISONS):
        snapshot = await scheduler.backend.snapshot()
        states = scheduler.service.states
        known = {key for namespace in states.namespaces() for key in states.keys(namespace)}
        missing = known - {record.key for record in snapshot.records}
        older = [record for record in snapshot.records if states.held(record.key).generation < record.generation]
        differences = len(missing) + len(older)
        if not differences:
            break
        await asyncio.sleep(0.2)
    overbooked = 0
    for batch in in_batches(range(hosts), 200):  # a page of host states is 512 KiB at most
        reply = await scheduler.ask(GetHostStates(nodes=tuple(node_of(number) for number in batch)))
        overbooked += sum(host.usage.servers + len(host.claims) > PLACES for host in reply.hosts)
    return HeldComparison(differences=differences, overbooked=overbooked)


async def _select(scheduler: BenchScheduler) -> ClaimKey | str:
    instance = InstanceUuid(new_uuid())
    try:
        reply = await scheduler.ask(SelectDestinations(spec=SPEC, members=(Member(instance, 1),)))
    except Unavailable:
        return "failed"
    decision = reply.decisions[0]
    if isinstance(decision, Placed):
        return ClaimKey(instance, 1, NodeUuid(decision.node))
    assert isinstance(decision, NoValidHost | NotReady)
    return "refused" if isinstance(decision, NoValidHost) else "not_ready"


def _shuffled(hosts: int) -> list[int]:
    numbers = list(range(hosts))
    random.Random(7).shuffle(numbers)  # noqa: S311 - load, not secrets
    return numbers
