"""A trace against a cloud under one policy: each server is decided by the service's own code, one after the other.

Pure: no clock, no dice; the seed is an argument, and the same trace, cloud, policy and seed give the same outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from skep.domain.builds import NotReady
from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.request_specs import RequestSpec
from skep.placement.deciding import Deciding, Seat
from skep.placement.hosts.published import DEFAULT_ZONE, ZONE_KEY
from skep.placement.hosts.table import Intake
from skep.placement.knowledge import Knowledge
from skep.placement.request import PlacementRequest, placement_request
from skep.simulator.clouds import CloudPlan, scaled
from skep.simulator.events import Departure, HostEvent, Trace, TracedServer, in_order, requests_of
from skep.simulator.measures import empty_hosts, fragmentation, utilisation
from skep.simulator.policies import SimulatedPolicy

CONDUCTOR = "simulator"
MOST_KINDS = 20
"""Kinds of requests, the most frequent, over which fragmentation is the mean."""
REPORTED = 500
"""Events between which nobody is told how far it is."""

OnProgress = Callable[[int, int], None]
"""Told of events done, and of all."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cloud at one moment."""

    at: int
    """Microseconds since the trace began."""
    running: int
    placed: int
    """Since the beginning; likewise refused."""
    refused: int
    empty_hosts: int
    utilisation: dict[str, float]
    fragmentation: dict[str, float]


class SimulationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trace under one policy."""

    policy: str
    hosts: int
    servers: int
    placed: int
    refused: int
    refused_by: dict[str, int]
    """How many by the stage that left nobody, or by what else was the reason."""
    first_refusal_at: int | None
    """Microseconds since the trace began."""
    most_running: int
    least_empty_hosts: int
    mean_empty_hosts: float
    mean_utilisation: dict[str, float]
    """Over the samples, which stand at equal distances; likewise fragmentation."""
    peak_utilisation: dict[str, float]
    mean_fragmentation: dict[str, float]
    samples: tuple[Sample, ...]


class Simulation:
    """A cloud to which servers come and from which they go."""

    def __init__(
        self, plan: CloudPlan, policy: SimulatedPolicy, *, units: dict[str, int] | None = None, seed: int = 0
    ) -> None:
        self.known = Knowledge(policy.settings)
        self._policy = policy
        self._seed = seed
        self._running: dict[str, Deciding] = {}
        self._requests: dict[int, tuple[RequestSpec, PlacementRequest]] = {}
        """By the identity of a request that many servers share; it is kept, so that no other gets its number."""
        self._hosts = {host.usage.host: host for host in plan.hosts}
        _furnish(self.known, plan, units or {})

    @property
    def running(self) -> int:
        """How many servers have a host."""
        return len(self._running)

    def arrive(self, name: str, spec: RequestSpec) -> str | None:
        """Place a server; return why it cannot be, None if it is. A name that is running is refused."""
        if name in self._running:
            return "the name is taken"
        seat = Seat(InstanceUuid(name), 1, self._request(spec))
        deciding = Deciding(self.known, [seat], min_count=1, seed=self._seed)
        deciding.decide_all()
        if seat.choice is not None:
            self._running[name] = deciding
            return None
        if isinstance(seat.no, NotReady):
            return seat.no.reason
        assert seat.no is not None
        # Those that come after it had none to judge.
        emptied = next((one.stage for one in seat.no.stages if not one.left), "no host")
        return seat.no.reason or emptied

    def depart(self, name: str) -> None:
        """Take a server away, if it is there."""
        deciding = self._running.pop(name, None)
        if deciding is not None:
            deciding.drop_all()

    def node_of(self, name: str) -> NodeUuid | None:
        """Return where a server is."""
        deciding = self._running.get(name)
        choice = deciding.seats[0].choice if deciding is not None else None
        return choice.node if choice is not None else None

    def change(self, change: HostEvent) -> None:
        """Let a host fail or come back. Raises KeyError for one that the cloud does not have."""
        host = self._hosts[change.host]
        self.known.table.set_intent(_intent(host, up=change.up))

    def _request(self, spec: RequestSpec) -> PlacementRequest:
        options = self._policy.settings.options
        if spec.lifetime is not None:
            return placement_request(spec, alternates=0, options=options)
        known = self._requests.get(id(spec))
        if known is None:
            known = self._requests[id(spec)] = (spec, placement_request(spec, alternates=0, options=options))
        return known[1]


def run(
    trace: Trace,
    plan: CloudPlan,
    policy: SimulatedPolicy,
    *,
    seed: int = 0,
    samples: int = 200,
    on_progress: OnProgress | None = None,
) -> SimulationOutcome:
    """Place all servers of a trace. Raises KeyError for a change of a host that there is not."""
    simulation = Simulation(plan, policy, units=trace.units, seed=seed)
    events = in_order(trace)
    noted = _Notes(simulation, trace, samples)
    for number, event in enumerate(events):
        noted.until(event.at)
        match event:
            case TracedServer():
                noted.count(event.at, simulation.arrive(event.name, event.spec))
            case Departure():
                simulation.depart(event.server)
            case HostEvent():
                simulation.change(event)
        if on_progress is not None and number % REPORTED == 0:
            on_progress(number, len(events))
    if on_progress is not None:
        on_progress(len(events), len(events))
    return noted.outcome(policy.name, len(plan.hosts))


class _Notes:
    """What is counted and sampled on the way."""

    def __init__(self, simulation: Simulation, trace: Trace, samples: int) -> None:
        self._simulation = simulation
        self._kinds = requests_of(trace.servers, MOST_KINDS)
        times = [server.at for server in trace.servers]
        begin, end = min(times), max(times)
        step = max(1, (end - begin) // samples)
        self._due = [begin + step * number for number in range(1, samples) if begin + step * number < end] + [end]
        self._next = 0
        self._begin = begin
        self._taken: list[Sample] = []
        self._placed = 0
        self._refused_by: Counter[str] = Counter()
        self._first_refusal: int | None = None
        self._most_running = 0

    def until(self, at: int) -> None:
        """Sample all that is due before a moment."""
        while self._next < len(self._due) and self._due[self._next] < at:
            self._sample(self._due[self._next])
            self._next += 1

    def count(self, at: int, refused: str | None) -> None:
        if refused is None:
            self._placed += 1
            self._most_running = max(self._most_running, self._simulation.running)
            return
        self._refused_by[refused] += 1
        if self._first_refusal is None:
            self._first_refusal = at - self._begin

    def outcome(self, policy: str, hosts: int) -> SimulationOutcome:
        for at in self._due[self._next :]:
            self._sample(at)
        refused = self._refused_by.total()
        return SimulationOutcome(
            policy=policy,
            hosts=hosts,
            servers=self._placed + refused,
            placed=self._placed,
            refused=refused,
            refused_by=dict(self._refused_by.most_common()),
            first_refusal_at=self._first_refusal,
            most_running=self._most_running,
            least_empty_hosts=min(sample.empty_hosts for sample in self._taken),
            mean_empty_hosts=sum(sample.empty_hosts for sample in self._taken) / len(self._taken),
            mean_utilisation=_mean([sample.utilisation for sample in self._taken]),
            peak_utilisation=_peak([sample.utilisation for sample in self._taken]),
            mean_fragmentation=_mean([sample.fragmentation for sample in self._taken]),
            samples=tuple(self._taken),
        )

    def _sample(self, at: int) -> None:
        table = self._simulation.known.table
        sample = Sample(
            at=at - self._begin,
            running=self._simulation.running,
            placed=self._placed,
            refused=self._refused_by.total(),
            empty_hosts=empty_hosts(table),
            utilisation=utilisation(table),
            fragmentation=fragmentation(table, self._kinds),
        )
        self._taken.append(sample)


def _mean(values: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(value.get(name, 0.0) for value in values) / len(values) for name in values[-1]}


def _peak(values: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(value.get(name, 0.0) for value in values) for name in values[-1]}


def _furnish(known: Knowledge, plan: CloudPlan, units: dict[str, int]) -> None:
    """Put hosts into what is known, all of them ready."""
    table = known.table
    cells: dict[CellUuid, list[NodeUuid]] = {}
    zones: dict[str, list[str]] = {}
    intake = Intake(table)
    for host in plan.hosts:
        if host.cell not in cells:
            table.set_cell(host.cell, known=True, asserted=True)
        cells.setdefault(host.cell, []).append(host.node)
        if host.zone != DEFAULT_ZONE:
            zones.setdefault(host.zone, []).append(host.usage.host)
        table.set_intent(_intent(host, up=host.up))
        intake.report(host.node, host.cell, scaled(host.usage, units))
    intake.flush()
    for cell, nodes in cells.items():
        known.take_beat(cell, CONDUCTOR, tuple(nodes), 0, 0.0)
    _group(known, plan, zones)
    for host in plan.hosts:
        known.claims.set_stored(host.node, _scaled_claims(host, units))


def _group(known: Knowledge, plan: CloudPlan, zones: dict[str, list[str]]) -> None:
    """Make the aggregates, and one more for each zone that none of them names."""
    named = {aggregate.metadata.get(ZONE_KEY) for aggregate in plan.aggregates.values()}
    for number, aggregate in plan.aggregates.items():
        known.table.set_aggregate(number, aggregate.hosts, aggregate.metadata)
    following = max(plan.aggregates, default=0) + 1
    for number, (zone, hosts) in enumerate(sorted(zones.items()), following):
        if zone not in named:
            known.table.set_aggregate(number, hosts, {ZONE_KEY: zone})


def _intent(host: HostState, *, up: bool) -> HostIntent:
    return HostIntent(node=host.node, host=host.usage.host, cell=host.cell, disabled=host.disabled, forced_down=not up)


def _scaled_claims(host: HostState, units: dict[str, int]) -> tuple[Claim, ...]:
    return tuple(
        msgspec.structs.replace(
            claim, resources={name: amount * units.get(name, 1) for name, amount in claim.resources.items()}
        )
        for claim in host.claims
    )
