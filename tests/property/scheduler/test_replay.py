"""Whatever a scheduler takes in and decides, in whatever order: its log, cut anywhere, comes out the same."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import AggregatePage, Member, SelectDestinations
from skep.placement.groups import GroupSlot
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.recording import RecordedDeciding, RecordedStates
from skep.scheduler.records import (
    AGGREGATES,
    CELLS,
    COMPUTE,
    GROUPS,
    OPERATOR,
    BeatValue,
    CellValue,
    ComputeValue,
    GroupValue,
    HearingValue,
    beat_key,
    hearing_key,
)
from skep.simulator.replay import Tally, replay
from skep.synchronizer.base import Key
from tests.support.decision_logs import MemoryLog
from tests.support.samples import examples

CELLS_OF = (CellUuid("cell-0"), CellUuid("cell-1"))
NODES = tuple(NodeUuid(f"node-{number}") for number in range(6))
GROUPS_OF = tuple(GroupUuid(policy) for policy in ("affinity", "anti-affinity", "soft-anti-affinity"))


class Scheduler:
    """One scheduler to which things happen, drawn from one seed."""

    def __init__(self, seed: int, every: int, config: SchedulerSettings) -> None:
        self.dice = random.Random(seed)
        self.log = MemoryLog(config, every=every)
        self.states = RecordedStates(config, self.log)
        self.config = config
        self.generations: dict[Key, int] = {}
        self.requests: list[RecordedDeciding] = []
        self.now = 100.0
        self.servers = 0
        self.log.open("run")
        self.states.observe(self.now)
        self.ready()

    def ready(self) -> None:
        """All hosts may get servers."""
        for cell in CELLS_OF:
            self.take(Key(CELLS, cell), CellValue(intent=Cell(uuid=cell, name=cell), asserted=True))
            nodes = tuple(node for node in NODES if self.cell_of(node) == cell)
            for node in nodes:
                self.take(Key(OPERATOR, node), HostIntent(node=node, host=f"host-{node}", cell=cell))
                self.tell(node)
            key = beat_key(cell, "a")
            self.take(key, BeatValue(at=int(self.now), heard=nodes))

    def take(self, key: Key, value: Any, *, aged: bool = True) -> None:
        self.generations[key] = self.generations.get(key, 0) + 1
        self.states.take(key, self.generations[key], value, self.now if aged else None)

    def step(self) -> None:
        self.now += self.dice.choice((0.0, 0.01, 1.0, 7.0))
        happening = self.dice.choice(
            (self.cell, self.host, self.host, self.report, self.report, self.beat, self.beat, self.page, self.zone)
            + (self.members, self.group, self.lose, self.look, self.epoch, self.ready)
            + (self.ask,) * 8
            + (self.again, self.end, self.end, self.store, self.store)
        )
        happening()

    def cell(self) -> None:
        cell = self.dice.choice(CELLS_OF)
        wish = Cell(uuid=cell, name=cell, disabled=self.dice.random() < 0.1)
        self.take(Key(CELLS, cell), CellValue(intent=wish, asserted=self.dice.random() < 0.97))

    def host(self) -> None:
        node = self.dice.choice(NODES)
        gone = self.dice.random() < 0.1
        disabled = self.dice.random() < 0.1
        wish = HostIntent(node=node, host=f"host-{node}", cell=self.cell_of(node), disabled=disabled)
        self.take(Key(OPERATOR, node), None if gone else wish)

    def report(self) -> None:
        self.tell(self.dice.choice(NODES))

    def tell(self, node: NodeUuid) -> None:
        held: ComputeValue | None = self.states.held(Key(COMPUTE, node)).value
        inventory = {
            "VCPU": Inventory(total=self.dice.choice((4, 8)), allocation_ratio=2.0),
            "MEMORY_MB": Inventory(total=4096),
            "DISK_GB": Inventory(total=self.dice.choice((10, 20))),
        }
        usage = HostUsage(
            host=f"host-{node}",
            inventory=inventory,
            used={"VCPU": self.dice.randint(0, 1)},
            traits=self.dice.choice(((), ("CUSTOM_A",), ("CUSTOM_A", "CUSTOM_B"))),
        )
        report = Report(incarnation=1, seq=self.servers, usage=usage)
        claims = held.claims if held is not None else ()
        left = tuple(claim for claim in claims if self.dice.random() < 0.8)
        value = ComputeValue(cell=self.cell_of(node), report=report, claims=left)
        self.take(Key(COMPUTE, node), value, aged=self.dice.random() < 0.8)

    def beat(self) -> None:
        cell = self.dice.choice(CELLS_OF)
        heard = tuple(node for node in NODES if self.cell_of(node) == cell and self.dice.random() < 0.9)
        pages = self.dice.choice((None, None, (1,), (1, 2)))
        listening = self.dice.random() < 0.1
        value = BeatValue(at=int(self.now), listening=listening, pages=pages, heard=() if pages else heard)
        gone = self.dice.random() < 0.1
        key = beat_key(cell, self.dice.choice(("a", "b")))
        self.take(key, None if gone else value, aged=self.dice.random() < 0.9)

    def page(self) -> None:
        cell = self.dice.choice(CELLS_OF)
        nodes = tuple(node for node in NODES if self.cell_of(node) == cell and self.dice.random() < 0.7)
        key = hearing_key(cell, self.dice.choice(("a", "b")), self.dice.randrange(2))
        value = HearingValue(version=self.dice.choice((1, 2)), nodes=nodes)
        self.take(key, None if self.dice.random() < 0.1 else value)

    def zone(self) -> None:
        hosts = tuple(f"host-{node}" for node in NODES if self.dice.random() < 0.5)
        wish = AggregatePage(id=1, hosts=hosts, metadata={"availability_zone": self.dice.choice(("east", "west"))})
        self.take(Key(AGGREGATES, "1"), None if self.dice.random() < 0.2 else wish)

    def members(self) -> None:
        self.states.share_hosts("me", self.dice.choice(((), ("other",), ("other", "third"))))

    def group(self) -> None:
        group = self.dice.choice(GROUPS_OF)
        slots = tuple(
            GroupSlot(InstanceUuid(f"old-{number}"), 1, self.dice.choice(NODES))
            for number in range(self.dice.randint(0, 2))
        )
        self.take(Key(GROUPS, group), GroupValue(slots=slots, incomplete=self.dice.random() < 0.1))

    def lose(self) -> None:
        """A record that nobody understands."""
        key = Key(COMPUTE, self.dice.choice(NODES))
        self.generations[key] = self.generations.get(key, 0) + 1
        self.states.quarantine(key, self.generations[key], "made up", self.now)

    def look(self) -> None:
        self.states.observe(self.now)

    def epoch(self) -> None:
        if self.dice.random() < 0.2:
            self.generations.clear()
            self.states.begin(f"epoch-{self.now}")
            self.ready()

    def ask(self) -> None:
        policy: Any = self.dice.choice((None, None, None, *GROUPS_OF))
        group = GroupRule(uuid=policy, policy=policy) if policy is not None else None
        specs = self.dice.choice(({}, {}, {"trait:CUSTOM_A": "required"}))
        flavor = Flavor(flavorid="1", name="f", vcpus=self.dice.randint(1, 3), memory_mb=512, extra_specs=specs)
        zone = self.dice.choice((None, None, "east"))
        spec = RequestSpec(
            project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, group=group, availability_zone=zone
        )
        members = []
        for _ in range(self.dice.choice((1, 1, 3))):
            self.servers += 1
            members.append(Member(InstanceUuid(f"server-{self.servers}"), 1))
        dry_run = self.dice.random() < 0.1
        message = SelectDestinations(
            spec=spec, members=tuple(members), dry_run=dry_run, ignore=(NODES[0],) if self.dice.random() < 0.1 else ()
        )
        deciding = RecordedDeciding(self.states, self.config, message, self.dice.randrange(3))
        deciding.decide_all(anew=dry_run)
        self.requests.append(deciding)

    def again(self) -> None:
        if self.requests:
            deciding = self.dice.choice(self.requests)
            seat = self.dice.choice(deciding.seats)
            if seat.claim is not None and seat.choice is not None and self.dice.random() < 0.5:
                deciding.shun(seat)
            deciding.decide_again(seat)
            deciding.decide_undecided()

    def store(self) -> None:
        """What was decided comes back as a record."""
        decided = [seat for deciding in self.requests for seat in deciding.seats if seat.choice is not None]
        if decided:
            claim = self.dice.choice(decided).claim
            assert claim is not None
            self._store(claim)

    def _store(self, claim: Claim) -> None:
        key = Key(COMPUTE, claim.node)
        held: ComputeValue | None = self.states.held(key).value
        if held is not None and claim not in held.claims:
            value = ComputeValue(cell=held.cell, report=held.report, claims=(*held.claims, claim))
            self.take(key, value)

    def end(self) -> None:
        if self.requests:
            self.requests.pop(self.dice.randrange(len(self.requests))).drop_all()

    def cell_of(self, node: NodeUuid) -> CellUuid:
        return CELLS_OF[NODES.index(node) % 2]


POLICIES = (
    SchedulerSettings(),
    SchedulerSettings(weighers={"FragmentationWeigher": 1.0}),
    SchedulerSettings(normalization="min-max", host_subset_size=2),
)
"""The second learns from the decisions themselves."""


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    every=st.sampled_from((5, 17, 60, 10_000)),
    steps=st.integers(20, 200),
    policy=st.sampled_from(POLICIES),
)
def test_a_log_that_is_cut_anywhere_comes_out_the_same(
    seed: int, every: int, steps: int, policy: SchedulerSettings
) -> None:
    scheduler = Scheduler(seed, every, policy)
    for _ in range(steps):
        scheduler.step()
    tally = Tally()
    for segment in scheduler.log.entries():
        replay(segment, tally)
    assert tally.differences == []
    assert tally.reproduced == tally.decisions
    assert tally.incomplete == 0
