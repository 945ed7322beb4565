"""Each weigher: who comes first."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.cells import HostIntent
from skep.domain.ids import CellUuid, NodeUuid


@pytest.mark.parametrize(
    ("weigher", "usage"),
    [("CPUWeigher", {"VCPU": 8}), ("RAMWeigher", {"MEMORY_MB": 4096}), ("DiskWeigher", {"DISK_GB": 50})],
)
@pytest.mark.parametrize(("multiplier", "first"), [(1.0, "empty"), (-1.0, "fuller")])
def test_free_resources(make_world: Any, weigher: str, usage: dict[str, int], multiplier: float, first: str) -> None:
    world = make_world(weighers={weigher: multiplier})
    world.host("empty")
    world.host("fuller", used=usage)
    for number in range(5):
        assert world.choose(instance=f"i{number}").host == first


def test_free_is_a_share_of_the_hosts_own_capacity(make_world: Any) -> None:
    world = make_world(weighers={"CPUWeigher": 1.0})
    world.host("large", vcpus=64, used={"VCPU": 128})
    world.host("small", vcpus=4)
    assert world.choose().host == "small"


def test_failed_builds_outweigh_everything_until_one_succeeds(world: Any, usage: Any) -> None:
    world.host("large", vcpus=64, failed_builds=1)
    world.host("small", used={"VCPU": 15})
    assert world.choose().host == "small"
    world.table.set_report("node-large", "cell-1", usage("large", vcpus=64))
    assert world.choose().host == "large"


@pytest.mark.parametrize(("policy", "first"), [("soft-affinity", "b"), ("soft-anti-affinity", "a")])
def test_soft_policies_are_wishes(world: Any, spec: Any, group: Any, policy: Any, first: str) -> None:
    world.host("a")
    world.host("b")
    world.member("b")
    for number in range(5):
        assert world.choose(spec(group=group(policy)), f"i{number}").host == first
    world.table.set_intent(HostIntent(node=NodeUuid("node-a"), host="a", cell=CellUuid("cell-1"), disabled=True))
    assert world.choose(spec(group=group(policy))).host == "b"


def test_scores_are_explained_for_the_best_hosts(world: Any) -> None:
    for name in "abcd":
        world.host(name)
    chosen = world.choose(alternates=1)
    assert set(chosen.explanation.scores) == {chosen.host, chosen.alternates[0].host}
    assert chosen.explanation.scores[chosen.host] == {
        "CPUWeigher": 1.0,
        "RAMWeigher": 1.0,
        "DiskWeigher": 1.0,
        "BuildFailureWeigher": 0.0,
        "IoOpsWeigher": 0.0,
        "HypervisorVersionWeigher": 0.0,
        "PCIWeigher": 1.0,
    }
