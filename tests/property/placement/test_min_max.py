"""Nova's way of weighing, said again in plain words: the order of all hosts that are left is the same."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule, Policy
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.choice import Choice
from skep.placement.groups import GroupSlot
from skep.placement.hosts.host_columns import stable_hash
from skep.placement.knowledge import Knowledge
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings

CELL, GROUP = CellUuid("cell"), GroupUuid("group")
MULTIPLIERS = {
    "CPUWeigher": 1.0,
    "RAMWeigher": -2.0,
    "DiskWeigher": 0.5,
    "BuildFailureWeigher": 1_000_000.0,
    "ServerGroupSoftAffinityWeigher": 3.0,
    "ServerGroupSoftAntiAffinityWeigher": 3.0,
    "IoOpsWeigher": -1.0,
    "NumInstancesWeigher": -0.25,
    "HypervisorVersionWeigher": 1.0,
}


class Fake(msgspec.Struct, frozen=True):
    """One host, as it reports and as others load it."""

    vcpus: int
    memory: int
    disk: int
    used: int
    failed: int
    members: int
    io_ops: int
    version: int
    aggregate: bool
    """Whether it is in the aggregate that sets a multiplier of its own."""

    def usage(self, name: str) -> HostUsage:
        inventory = {VCPU: self.vcpus, MEMORY_MB: self.memory, DISK_GB: self.disk}
        return HostUsage(
            host=name,
            inventory={key: Inventory(total=total) for key, total in inventory.items()},
            used={VCPU: self.used, MEMORY_MB: 3 * self.used, DISK_GB: 2 * self.used},
            failed_builds=self.failed,
            io_ops=self.io_ops,
            instances=self.used,
            hypervisor_version=self.version,
        )


hosts = st.lists(
    st.builds(
        Fake,
        vcpus=st.integers(1, 12),
        memory=st.integers(1, 40),
        disk=st.integers(1, 30),
        used=st.integers(0, 8),
        failed=st.integers(0, 2),
        members=st.integers(0, 2),
        io_ops=st.integers(0, 9),
        version=st.sampled_from([7_002_000, 8_000_000, 9_001_000]),
        aggregate=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def known(fakes: list[Fake], policy: Policy | None) -> Knowledge:
    """Return what a scheduler knows of these hosts, one of which holds a claim."""
    states = Knowledge(SchedulerSettings(normalization="min-max", weighers=MULTIPLIERS))
    table = states.table
    table.set_cell(CELL, known=True, asserted=True, living=True)
    inside = [f"host-{number}" for number, fake in enumerate(fakes) if fake.aggregate]
    table.set_aggregate(1, inside, {"cpu_weight_multiplier": "5"})
    for number, fake in enumerate(fakes):
        node = NodeUuid(f"node-{number}")
        table.set_intent(HostIntent(node=node, host=f"host-{number}", cell=CELL))
        table.set_report(node, CELL, fake.usage(f"host-{number}"))
        for member in range(fake.members if policy else 0):
            states.groups.assume(GROUP, GroupSlot(InstanceUuid(f"m-{number}-{member}"), 1, node))
    table.set_heard(CELL, tuple(table.nodes), 1)
    states.claims.assume(Claim(instance=InstanceUuid("c"), attempt=1, node=table.nodes[0], resources={VCPU: 1}))
    return states


def expected(fakes: list[Fake], policy: Policy | None, instance: str) -> list[str]:
    """Return the hosts that have one virtual CPU free, in the order in which Nova would take them."""
    free = [fake.vcpus - fake.used - (number == 0) for number, fake in enumerate(fakes)]
    left = [number for number in range(len(fakes)) if free[number] >= 1]
    weight = dict.fromkeys(left, 0.0)

    def weigh(multiplier: float, value: Callable[[int], float], least: float | None = None, key: str = "") -> None:
        values = {number: value(number) if least is None else max(value(number), least) for number in left}
        low, high = min(values.values()) if least is None else least, max(values.values())
        for number in left:
            factor = 5.0 if key == "cpu" and fakes[number].aggregate else multiplier
            if high != low:
                weight[number] += factor * ((values[number] - low) / (high - low))

    if len(left) > 1:
        weigh(1.0, lambda n: free[n], 0.0, "cpu")
        weigh(-2.0, lambda n: fakes[n].memory - 3 * fakes[n].used, 0.0)
        weigh(0.5, lambda n: fakes[n].disk - 2 * fakes[n].used, 0.0)
        weigh(-1_000_000.0, lambda n: fakes[n].failed)
        if policy == "soft-affinity":
            weigh(3.0, lambda n: fakes[n].members)
        if policy == "soft-anti-affinity":
            weigh(3.0, lambda n: -fakes[n].members)
        claims = [int(number == 0) for number in range(len(fakes))]
        weigh(-1.0, lambda n: fakes[n].io_ops + claims[n], 0.0)
        weigh(-0.25, lambda n: fakes[n].used + claims[n])
        weigh(1.0, lambda n: fakes[n].version)
    salt = stable_hash(f"0/{instance}")
    left.sort(key=lambda n: (-weight[n], (stable_hash(f"node-{n}") - salt) % 2**64))
    return [f"host-{number}" for number in left]


@given(hosts, st.sampled_from([None, "soft-affinity", "soft-anti-affinity"]))
def test_the_order_of_all_hosts_is_novas(fakes: list[Fake], policy: Policy | None) -> None:
    states = known(fakes, policy)
    flavor = Flavor(flavorid="1", name="tiny", vcpus=1, memory_mb=0)
    group = GroupRule(uuid=GROUP, policy=policy) if policy else None
    spec = RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, group=group)
    request = placement_request(spec, alternates=100)
    for instance in ("one", "two"):
        chosen = states.placement.choose(request, InstanceUuid(instance), seed=0)
        found = [chosen.host, *(other.host for other in chosen.alternates)] if isinstance(chosen, Choice) else []
        assert found == expected(fakes, policy, instance)


def test_the_scores_that_are_told_are_the_scaled_ones() -> None:
    fakes = [Fake(9, 8, 8, 0, 0, 0, 0, 0, False), Fake(4, 4, 8, 0, 1, 0, 0, 0, False)]
    spec = RequestSpec(
        project_id=ProjectId("p"), user_id=UserId("u"), flavor=Flavor(flavorid="1", name="tiny", vcpus=1, memory_mb=0)
    )
    chosen = known(fakes, None).placement.choose(placement_request(spec), InstanceUuid("i"), seed=0)
    assert isinstance(chosen, Choice)
    assert chosen.explanation.scores["host-0"]["CPUWeigher"] == 1.0
    assert chosen.explanation.scores["host-1"]["CPUWeigher"] == 0.5
    assert chosen.explanation.scores["host-1"]["BuildFailureWeigher"] == -1.0
