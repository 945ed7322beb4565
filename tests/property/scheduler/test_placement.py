"""What holds for every order of events: columns, claims, groups, repeatability."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skep.domain.builds import Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import MEMORY_MB, VCPU, Inventory
from skep.messages.to_scheduler import (
    AggregatePage,
    AssertClaims,
    HostReport,
    Member,
    PublishOperatorState,
    ReleaseClaims,
    SelectDestinations,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from skep.scheduler.records import (
    AGGREGATES,
    BEATS,
    CELLS,
    COMPUTE,
    OPERATOR,
    BeatValue,
    CellValue,
    ComputeValue,
    beat_key,
)
from skep.scheduler.service import SchedulerService
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport
from tests.support.samples import examples

NODES = tuple(NodeUuid(f"n{number}") for number in range(6))
CELLS_OF = {node: CellUuid(f"cell-{number % 2}") for number, node in enumerate(NODES)}
TRAITS = ("CUSTOM_A", "CUSTOM_B")

nodes = st.sampled_from(NODES)
cells = st.sampled_from(sorted(set(CELLS_OF.values())))


def usage_of(node: str, vcpus: int, memory: int, used: int, traits: tuple[str, ...] = (), failed: int = 0) -> HostUsage:
    return HostUsage(
        host=f"host-{node}",
        inventory={
            VCPU: Inventory(total=vcpus, allocation_ratio=1.5),
            MEMORY_MB: Inventory(total=memory, reserved=min(64, memory)),
        },
        used={VCPU: used},
        traits=traits,
        failed_builds=failed,
        hypervisor_hostname=f"host-{node}",
    )


def flavor_of(vcpus: int, memory: int, trait: str | None = None) -> Flavor:
    wanted = {f"trait:{trait}": "required"} if trait else {}
    return Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=memory, extra_specs=wanted)


def spec_of(flavor: Flavor, **facts: Any) -> RequestSpec:
    return RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, **facts)


picks = st.integers(0, 1000)
flavors = st.builds(
    flavor_of, st.integers(1, 4), st.sampled_from([64, 128, 512]), st.sampled_from([None, None, *TRAITS])
)
specs = st.builds(spec_of, flavors, availability_zone=st.sampled_from([None, None, "nova", "east"]))
values = {
    COMPUTE: st.builds(
        lambda node, facts, claims: (
            node,
            ComputeValue(
                cell=CELLS_OF[node],
                report=Report(incarnation=1, seq=1, usage=usage_of(node, *facts)),
                claims=tuple(
                    Claim(instance=InstanceUuid(f"i{n}"), attempt=1, node=node, resources={VCPU: 1, MEMORY_MB: 64})
                    for n in claims
                ),
            ),
        ),
        nodes,
        st.tuples(
            st.integers(0, 16),
            st.integers(0, 2048),
            st.integers(0, 4),
            st.lists(st.sampled_from(TRAITS), unique=True).map(tuple),
            st.integers(0, 1),
        ),
        st.sets(st.integers(0, 3)),
    ),
    OPERATOR: st.builds(
        lambda node, disabled, down: (
            node,
            HostIntent(node=node, host=f"host-{node}", cell=CELLS_OF[node], disabled=disabled, forced_down=down),
        ),
        nodes,
        st.booleans(),
        st.booleans(),
    ),
    AGGREGATES: st.builds(
        lambda number, members, zone: (
            str(number),
            AggregatePage(
                id=number,
                hosts=tuple(f"host-{node}" for node in members),
                metadata={"availability_zone": zone} if zone else {},
            ),
        ),
        st.integers(1, 2),
        st.sets(nodes),
        st.sampled_from([None, "east"]),
    ),
    CELLS: st.builds(
        lambda cell, disabled, asserted: (
            cell,
            CellValue(intent=Cell(uuid=cell, name=cell, disabled=disabled), asserted=asserted),
        ),
        cells,
        st.booleans(),
        st.booleans(),
    ),
    BEATS: st.builds(
        lambda cell, conductor, heard: (
            beat_key(cell, conductor).name,
            BeatValue(heard=tuple(node for node in sorted(heard)), at=1),
        ),
        cells,
        st.sampled_from(["one", "two", ""]),
        st.sets(nodes),
    ),
}
events = st.one_of(
    *(
        st.tuples(st.just(namespace), pairs, st.sampled_from([False, False, False, True]))
        for namespace, pairs in values.items()
    )
)


def fresh(truth: dict[Key, Any]) -> HostStates:
    """Return states that never knew anything but the truth of now."""
    states = HostStates(SchedulerSettings())
    states.begin("epoch")
    for key in sorted(truth):
        states.take(key, 1, truth[key], 0.0)
    return states


def columns(states: HostStates) -> dict[str, Any]:
    """Return what the columns say of each node that is mapped, in words that do not depend on the order of rows."""
    table = states.table
    said: dict[str, Any] = {}
    for row, node in enumerate(table.nodes):
        if not table.mapped[row]:
            continue
        said[node] = (
            bool(table.ready[row]),
            bool(table.up[row]),
            bool(table.disabled[row]),
            table.cell_of(row),
            table.zone_of(row),
            int(table.failed_builds[row]),
            {
                name: (
                    int(column.capacity[row]),
                    int(column.used[row]),
                    int(column.claimed[row]),
                    int(column.free[row]),
                )
                for name, column in table.resources.items()
                if column.capacity[row] or column.used[row] or column.claimed[row]
            },
            [trait for trait in TRAITS if table.traits.having(trait, np.array([row]))[0]],
            [number for number in (1, 2) if table.membership.having(number, np.array([row]))[0]],
        )
    return said


@given(st.lists(st.one_of(events, specs), max_size=40), specs)
def test_columns_kept_in_step_equal_columns_made_afresh(story: list[Any], last: RequestSpec) -> None:
    states = fresh({})
    truth: dict[Key, Any] = {}
    generation = 1
    for event in story:
        if isinstance(event, RequestSpec):
            states.placement.choose(placement_request(event), InstanceUuid("i"), seed=0)
            continue
        namespace, (name, value), removed = event
        generation += 1
        states.take(Key(namespace, name), generation, None if removed else value, 0.0)
        truth.pop(Key(namespace, name), None)
        if not removed:
            truth[Key(namespace, name)] = value
        states.placement.choose(placement_request(last), InstanceUuid("i"), seed=0)
    again = fresh(truth)
    assert columns(states) == columns(again)
    request = placement_request(last)
    for instance in ("x", "y"):
        one = states.placement.choose(request, InstanceUuid(instance), seed=3)
        other = again.placement.choose(request, InstanceUuid(instance), seed=3)
        assert getattr(one, "node", None) == getattr(other, "node", None)
        assert one.explanation.considered == other.explanation.considered
        assert one.explanation.stages == other.explanation.stages


class Cloud(RuleBasedStateMachine):
    """Two schedulers on one backend, asked for anything, at once."""

    @initialize(facts=st.lists(st.tuples(st.integers(1, 6), st.integers(64, 1024)), min_size=4, max_size=4))
    def begin(self, facts: list[tuple[int, int]]) -> None:
        self.runner = asyncio.Runner()
        self.nodes = NODES[: len(facts)]
        self.usages = {
            node: usage_of(node, vcpus, memory, 0) for node, (vcpus, memory) in zip(self.nodes, facts, strict=True)
        }
        self.placed: dict[tuple[str, int], Placed] = {}
        self.resources: dict[tuple[str, int], dict[str, int]] = {}
        self.group_of: dict[tuple[str, int], GroupRule] = {}
        self.number = 0
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.services = [
            SchedulerService(self.transport, self.backend, SchedulerSettings(), Clock(), monotonic=lambda: 0.0)
            for _ in range(2)
        ]
        for service in self.services:
            await service.start()
        wishes = tuple(HostIntent(node=node, host=f"host-{node}", cell=CELLS_OF[node]) for node in self.nodes)
        names = sorted(set(CELLS_OF.values()))
        told = tuple(Cell(uuid=cell, name=cell) for cell in names)
        await self._call(PublishOperatorState(hosts=wishes, aggregates=(), cells=told))
        for cell in names:
            heard = tuple(node for node in self.nodes if CELLS_OF[node] == cell)
            epoch = (await self._call(Beat(cell=cell, heard=heard))).epoch
            await self._call(AssertClaims(cell=cell, epoch=epoch, claims=()))
        for node in self.nodes:
            await self._report(node)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self._stop())
            self.runner.close()

    async def _stop(self) -> None:
        for service in self.services:
            await service.stop()

    async def _call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def _report(self, node: NodeUuid) -> None:
        self.number += 1
        report = HostReport(
            node=node, cell=CELLS_OF[node], incarnation=1, seq=self.number, usage=self.usages[node], settled=()
        )
        await self._call(UpdateHostState(reports=(report,)))

    @rule(
        wishes=st.lists(
            st.tuples(flavors, st.integers(1, 3), st.sampled_from([None, "affinity", "anti-affinity"])),
            min_size=1,
            max_size=4,
        ),
        minimum=st.integers(1, 3),
    )
    def select(self, wishes: list[tuple[Flavor, int, Any]], minimum: int) -> None:
        messages = []
        for flavor, count, policy in wishes:
            group = None
            if policy is not None:
                group = GroupRule(uuid=GroupUuid(policy), policy=policy, max_server_per_host=2)
            members = tuple(Member(InstanceUuid(f"i{self.number + n}"), 1) for n in range(count))
            self.number += count
            spec = spec_of(flavor, group=group)
            messages.append(SelectDestinations(spec=spec, members=members, min_count=min(minimum, count)))
        replies = self.runner.run(self._select(messages))
        for message, reply in zip(messages, replies, strict=True):
            placed = [decision for decision in reply.decisions if isinstance(decision, Placed)]
            assert not placed or len(placed) >= message.min_count
            for member, decision in zip(message.members, reply.decisions, strict=True):
                if isinstance(decision, Placed):
                    key = (member.instance, member.attempt)
                    self.placed[key] = decision
                    self.resources[key] = message.spec.resources()
                    if message.spec.group is not None:
                        self.group_of[key] = message.spec.group

    async def _select(self, messages: list[SelectDestinations]) -> list[Any]:
        return await asyncio.gather(*(self._call(message) for message in messages))

    def _one_of_the_placed(self, which: int) -> tuple[str, int]:
        # How many there are may depend on which scheduler answered, so what is drawn must not depend on it.
        return sorted(self.placed)[which % len(self.placed)]

    @rule(which=picks)
    def release(self, which: int) -> None:
        if self.placed:
            key = self._one_of_the_placed(which)
            placed = self.placed.pop(key)
            self.group_of.pop(key, None)
            name = ClaimKey(InstanceUuid(key[0]), key[1], placed.node)
            assert self.runner.run(self._call(ReleaseClaims(claims=(name,)))).released >= 1

    @rule(which=picks)
    def repeat(self, which: int) -> None:
        """Asked again of either scheduler, once it has read what the other wrote, an attempt has the same host."""
        if self.placed:
            instance, attempt = self._one_of_the_placed(which)
            member = Member(InstanceUuid(instance), attempt)
            message = SelectDestinations(spec=spec_of(flavor_of(1, 64)), members=(member,))
            self.runner.run(self._settle())
            (decision,) = self.runner.run(self._call(message)).decisions
            assert isinstance(decision, Placed)
            assert decision.node == self.placed[(instance, attempt)].node

    @rule(node=st.sampled_from(NODES[:4]))
    def report(self, node: NodeUuid) -> None:
        self.runner.run(self._report(node))

    async def _settle(self) -> None:
        for service in self.services:
            await service._mirror.catch_up()  # what its own task does some turns of the loop later

    @invariant()
    def no_host_is_overcommitted(self) -> None:
        for node in getattr(self, "nodes", ()):
            for name, inventory in self.usages[node].inventory.items():
                claimed = sum(
                    self.resources[key].get(name, 0) for key, placed in self.placed.items() if placed.node == node
                )
                assert claimed <= inventory.capacity

    @invariant()
    def groups_hold(self) -> None:
        members: dict[str, list[NodeUuid]] = {"affinity": [], "anti-affinity": []}
        for key, group in getattr(self, "group_of", {}).items():
            members[group.policy].append(self.placed[key].node)
        assert len(set(members["affinity"])) <= 1
        assert all(count <= 2 for count in Counter(members["anti-affinity"]).values())

    @invariant()
    def what_is_stored_is_what_was_answered(self) -> None:
        if not hasattr(self, "services"):
            return
        self.runner.run(self._settle())
        for service in self.services:
            claims = service._states.claims  # the schedulers' own knowledge, node by node
            held = {claim.key: node for node in self.nodes for claim in claims.of(node)}
            slots = {
                (slot.instance, slot.attempt, slot.node, group)
                for group in ("affinity", "anti-affinity")
                for slot in service._states.groups.slots(GroupUuid(group))
            }
            assert slots == {(*key, self.placed[key].node, group.uuid) for key, group in self.group_of.items()}
            assert held == {key: placed.node for key, placed in self.placed.items()}
            for node in self.nodes:
                totals = claims.totals(node)
                mine = [self.resources[key] for key, placed in self.placed.items() if placed.node == node]
                assert totals.get(VCPU, 0) == sum(one.get(VCPU, 0) for one in mine), "nothing assumed is left behind"


TestCloud = Cloud.TestCase
TestCloud.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)
