"""Never or only not now: what each filter says of a host on which nothing runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from skep.domain.builds import Explanation
from skep.domain.claims import Claim
from skep.domain.groups import SpreadConstraint
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.placement import registry
from skep.placement.choice import NoHost
from skep.placement.emptied import EmptyHosts
from skep.placement.filters.base import Filter
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.plugins import OneHost, column_filter, host_filter
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from skep.simulator.inside import GPU, devices, host_with_inside, spec_for_parts

PINNED = {"hw:cpu_policy": "dedicated"}
ALL = (*registry.FILTERS, *registry.FAMILIES, *registry.CONFIGURED, *(entry.name for entry in registry.NESTED))


def refusal(world: Any, spec: Any, **limits: Any) -> Explanation:
    found = world.choose(spec, **limits)
    assert isinstance(found, NoHost)
    return found.explanation


def inside(world: Any, name: str, **amounts: int) -> NodeUuid:
    usage = host_with_inside(name, **amounts)
    node: NodeUuid = world.host(name, inventory=usage.inventory, topology=usage.topology)
    return node


def test_every_filter_says_what_it_would_say_of_an_empty_host() -> None:
    options = PlacementOptions(
        limit_tenants_to_placement_aggregate=True,
        enable_isolated_aggregate_filtering=True,
        metrics_weight_setting={"cpu": 1.0},
    )
    entries = registry.pipeline(SchedulerSettings(filters=ALL, options=options)).filters
    assert len(entries) > len(ALL)
    for entry in entries:
        assert entry.if_empty is not None or (entry.steady and not entry.per_request), entry.name


def test_an_empty_host_has_all_that_it_has(world: Any) -> None:
    world.host("a", used={"VCPU": 3}, instances=3, io_ops=2)
    claim = Claim(instance=InstanceUuid("i"), attempt=1, node=NodeUuid("node-a"), resources={"VCPU": 1})
    world.claims.assume(claim)
    hosts, now = EmptyHosts(world.table), HostView(world.table)
    assert (hosts.free("VCPU").tolist(), now.free("VCPU").tolist()) == ([16], [12])
    assert (hosts.taken("VCPU").tolist(), hosts.free("CUSTOM_NONE").tolist()) == ([0], [0])
    assert hosts.free_share("VCPU").tolist() == [1.0]
    assert (hosts.servers.tolist(), hosts.io_ops.tolist()) == ([0], [0])


@pytest.mark.parametrize(
    "spec",
    [
        spec_for_parts(6, 256, PINNED),
        spec_for_parts(2, 256, PINNED | {"hw:numa_nodes": "2"}),
        spec_for_parts(2, 256, PINNED | {"hw:cpu_thread_policy": "isolate"}),
        spec_for_parts(2, 256, PINNED | {"hw:mem_page_size": "1048576"}),
        spec_for_parts(1, 256, {}, devices(GPU, 3)),
        spec_for_parts(1, 256, PINNED, devices(GPU, 2, "required")),
        spec_for_parts(1, 256, {"resources1:VGPU": "3"}),
        spec_for_parts(1, 256, {"resources1:VGPU": "1", "trait1:CUSTOM_NONE": "required"}),
    ],
)
def test_what_no_inside_could_ever_hold(world: Any, spec: Any) -> None:
    inside(world, "a", cells=1, cores=2, threads=2, gpus=1, vgpus=2)
    world.host("flat")
    found = refusal(world, spec)
    assert (found.verdict, found.could_hold) == ("never", 0)


@pytest.mark.parametrize(
    "spec",
    [
        spec_for_parts(3, 256, PINNED),
        spec_for_parts(1, 256, {}, devices(GPU, 1)),
        spec_for_parts(2, 256, PINNED, devices(GPU, 1)),
        spec_for_parts(1, 256, {"resources1:VGPU": "1"}),
    ],
)
def test_what_an_inside_holds_only_not_now(world: Any, spec: Any) -> None:
    for number in range(2):
        inside(world, f"h{number}", cells=2, cores=2, threads=2, gpus=1, vgpus=1)
    world.host("flat")
    assert world.fill(spec) > 0
    found = refusal(world, spec)
    assert (found.verdict, found.could_hold, found.left_aside) == ("not_now", 2, ())


@pytest.mark.parametrize("name", ["NumInstancesFilter", "IoOpsFilter"])
@pytest.mark.parametrize("scope", ["", "Aggregate"])
def test_limits_on_servers_and_builds_are_kept_by_empty_hosts(
    make_world: Any, spec: Any, name: str, scope: str
) -> None:
    options = PlacementOptions(max_instances_per_host=2, max_io_ops_per_host=2)
    world = make_world(filters=(scope + name,), options=options)
    world.host("a", instances=2, io_ops=2)
    assert refusal(world, spec()).could_hold == 1
    keys = {"max_instances_per_host": "0", "max_io_ops_per_host": "0"}
    world.table.set_aggregate(1, ["a"], keys)
    assert refusal(world, spec()).verdict == ("never" if scope else "not_now")


def test_queries_and_capabilities_are_asked_of_the_empty_host(make_world: Any, spec: Any, flavor: Any) -> None:
    world = make_world(filters=("JsonFilter", "ComputeCapabilitiesFilter"))
    world.host("a", used={"MEMORY_MB": 7000})

    def verdict(query: str) -> str:
        return refusal(world, spec(scheduler_hints={"query": query})).verdict

    assert verdict('[">=", "$free_ram_mb", 7680]') == "not_now"
    assert verdict('[">=", "$free_ram_mb", 7681]') == "never"
    assert verdict('["not", ["<", "$free_ram_mb", 8000]]') == "never"
    assert verdict('[">", "$metrics.cpu", 1]') == "not_now"
    enough = flavor(**{"capabilities:free_ram_mb": ">= 7680"})
    too_much = flavor(**{"capabilities:free_ram_mb": ">= 7681"})
    assert refusal(world, spec(flavor=enough)).verdict == "not_now"
    assert refusal(world, spec(flavor=too_much)).verdict == "never"
    assert refusal(world, spec(flavor=flavor(**{"capabilities:failed_builds": ">= 1"}))).left_aside == (
        "capabilities (failed_builds >= 1)",
    )


def test_groups_and_hints_are_no_property_of_a_host(world: Any, spec: Any, group: Any) -> None:
    for name in ("a", "b"):
        world.host(name)
        world.member(name, f"on-{name}")
    found = refusal(world, spec(group=group("anti-affinity")))
    assert (found.verdict, found.could_hold) == ("not_now", 2)
    assert found.left_aside == ("server group policy anti-affinity",)
    assert found.advice().endswith(
        "2 hosts could hold it if empty, up and enabled (leaving aside server group policy anti-affinity)"
    )
    assert refusal(world, spec(same_host_names=())).left_aside == ("hint same_host",)
    assert refusal(world, spec(different_host_names=("a", "b"))).left_aside == ("hint different_host",)
    assert refusal(world, spec(), ignore=("node-a", "node-b")).left_aside == ()


def test_a_spread_is_left_aside(world: Any, spec: Any, group: Any) -> None:
    world.host("a")
    rule = group("soft-anti-affinity")
    spread = type(rule)(uuid=rule.uuid, policy=rule.policy, spread=(SpreadConstraint(key="rack", max_skew=1),))
    assert refusal(world, spec(group=spread)).left_aside == ("topology spread (rack 1; no host reports a rack)",)


def test_cells_that_are_named_are_the_request_s_own(world: Any, spec: Any) -> None:
    other = CellUuid("cell-2")
    world.host("a")
    world.host("b", cell=other)
    for cell in (CellUuid("cell-1"), other):
        world.table.set_cell(cell, disabled=True)
    assert refusal(world, spec()).could_hold == 2
    assert refusal(world, spec(target_cell=other)).could_hold == 1
    assert refusal(world, spec(different_cells=(other,))).could_hold == 1
    assert refusal(world, spec(target_cell=CellUuid("cell-3"))).verdict == "never"
    assert refusal(world, spec(), exclude_cells=(other,)).could_hold == 2


def test_a_host_that_is_named_and_has_not_reported(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("silent")
    world.table.drop_report("node-silent")
    assert refusal(world, spec(requested_host="nobody")).verdict == "never"
    found = refusal(world, spec(requested_host="silent"))
    assert (found.could_hold, found.not_reported) == (1, 1)
    assert "1 of them not heard of yet, so perhaps too small" in found.advice()
    assert refusal(world, spec(requested_node="silent.example")).could_hold == 1


def test_a_plug_in_that_cannot_say_is_named(make_world: Any, spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def passes(hosts: HostView, _: Any) -> Any:
        asked.append(len(hosts))
        return hosts.none()

    entry = Filter(name="Mine", passes=passes, stage=lambda _: "mine", per_request=True, survivors_only=True)
    monkeypatch.setitem(registry.FILTERS, "Mine", entry)
    world = make_world(filters=("ComputeFilter", "Mine"))
    for number in range(50):
        world.host(f"h{number}", disabled=number > 2)
    found = refusal(world, spec())
    assert (found.verdict, found.left_aside) == ("not_now", ("mine",))
    assert set(found.rejected.values()) == {"being up and enabled (disabled, no reason given)", "mine"}
    assert max(asked) <= 32
    assert found.changes[0].parts == ("without mine",)


def test_what_empty_hosts_say_follows_what_they_report(world: Any) -> None:
    spec = spec_for_parts(6, 256, PINNED)
    inside(world, "a", cells=1, cores=2, threads=2)
    assert refusal(world, spec).verdict == "never"
    inside(world, "a", cells=2, cores=4, threads=2)
    assert world.fill(spec) == 2
    assert refusal(world, spec).could_hold == 1
    assert not np.count_nonzero(world.placement.might_fit(placement_request(spec), InstanceUuid("i")))


@pytest.mark.parametrize("per_request", [True, False])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_plug_in_that_says_what_empty_hosts_hold(
    make_world: Any, spec: Any, monkeypatch: pytest.MonkeyPatch, per_request: bool, one_by_one: bool
) -> None:
    def columns(hosts: HostView, _: Any) -> Any:
        return hosts.free("VCPU") >= 20

    def host(one: OneHost, _: Any) -> bool:
        return one.free("VCPU") >= 20

    flags: Any = {"stage": "mine", "per_request": per_request, "of_empty": True}
    entry = host_filter(**flags)(host) if one_by_one else column_filter(**flags)(columns)
    monkeypatch.setitem(registry.FILTERS, "Mine", dataclasses.replace(entry, name="Mine", plugin=True))
    world = make_world(filters=("ComputeFilter", "Mine"))
    world.host("small")
    assert refusal(world, spec()).verdict == "never"
    world.host("large", vcpus=8, used={"VCPU": 20})
    found = refusal(world, spec())
    assert (found.verdict, found.could_hold, found.left_aside) == ("not_now", 1, ())
