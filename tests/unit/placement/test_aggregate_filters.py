"""Filters that read the metadata of aggregates, and those with a limit for each host."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.claims import Claim
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.images import Image
from skep.placement.filters.num_instances import made_by_aggregate
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.pipeline import stage_of
from skep.placement.request import placement_request


def world_with(make_world: Any, *filters: str, **options: Any) -> Any:
    return make_world(filters=("ComputeFilter", *filters), options=PlacementOptions(**options))


def three(world: Any) -> Any:
    for name in "abc":
        world.host(name)
    return world


def test_all_hosts_filter_says_nothing(make_world: Any) -> None:
    world = three(world_with(make_world, "AllHostsFilter"))
    assert world.fitting() == {"a", "b", "c"}
    assert world.choose().explanation.stages == ()


@pytest.mark.parametrize(
    ("metadata", "project", "left"),
    [
        ({"filter_tenant_id": "mine"}, "mine", "abc"),
        ({"filter_tenant_id": "mine"}, "other", "bc"),
        ({"filter_tenant_id": "mine, other"}, "other", "abc"),
        ({"filter_tenant_id_2": "mine"}, "other", "bc"),
        ({"filter_tenant_id": "mine", "filter_tenant_id_2": "other"}, "other", "abc"),
        ({"tenant": "mine"}, "other", "abc"),
    ],
)
def test_aggregates_of_projects(make_world: Any, spec: Any, metadata: Any, project: str, left: str) -> None:
    world = three(world_with(make_world, "AggregateMultiTenancyIsolation"))
    world.table.set_aggregate(1, ["a"], metadata)
    assert world.fitting(spec(project_id=project)) == set(left)


def test_one_of_several_aggregates_that_lists_the_project_is_enough(make_world: Any, spec: Any) -> None:
    world = three(world_with(make_world, "AggregateMultiTenancyIsolation"))
    world.table.set_aggregate(1, ["a", "b"], {"filter_tenant_id": "mine"})
    world.table.set_aggregate(2, ["b"], {"filter_tenant_id": "other"})
    assert world.fitting(spec(project_id="other")) == {"b", "c"}
    world.table.set_aggregate(2, ["b"], {})
    assert world.fitting(spec(project_id="other")) == {"c"}
    world.table.drop_aggregate(1)
    assert world.fitting(spec(project_id="other")) == {"a", "b", "c"}


@pytest.mark.parametrize(("named", "left"), [("tiny", "abc"), ("big, tiny", "abc"), ("big", "bc")])
def test_aggregates_of_flavors(make_world: Any, named: str, left: str) -> None:
    world = three(world_with(make_world, "AggregateTypeAffinityFilter"))
    world.table.set_aggregate(1, ["a"], {"instance_type": named})
    assert world.fitting() == set(left)


@pytest.mark.parametrize(
    ("metadata", "properties", "namespace", "left"),
    [
        ({"os_distro": "debian"}, {"os_distro": "debian"}, None, "abc"),
        ({"os_distro": "debian"}, {"os_distro": "windows"}, None, "bc"),
        ({"os_distro": "debian, windows"}, {"os_distro": "windows"}, None, "abc"),
        ({"os_distro": "debian"}, {}, None, "abc"),
        ({"os_distro": "debian"}, {"os_type": "linux"}, None, "abc"),
        ({"os_distro": "debian", "os_type": "linux"}, {"os_distro": "debian", "os_type": "bsd"}, None, "bc"),
        ({"os_distro": "debian"}, {"os_distro": "windows"}, "iso", "abc"),
        ({"iso.kind": "gold"}, {"iso.kind": "dust"}, "iso", "bc"),
    ],
)
def test_aggregates_of_images(
    make_world: Any, spec: Any, metadata: Any, properties: Any, namespace: str | None, left: str
) -> None:
    world = three(
        world_with(
            make_world,
            "AggregateImagePropertiesIsolation",
            aggregate_image_properties_isolation_namespace=namespace,
        )
    )
    world.table.set_aggregate(1, ["a"], metadata)
    assert world.fitting(spec(image=Image(id="i", properties=properties))) == set(left)
    assert world.fitting(spec(image=None)) == {"a", "b", "c"}


def test_an_aggregate_that_begins_to_name_a_property_counts_at_once(make_world: Any, spec: Any) -> None:
    world = three(world_with(make_world, "AggregateImagePropertiesIsolation"))
    wanted = spec(image=Image(id="i", properties={"os_distro": "windows"}))
    assert world.fitting(wanted) == {"a", "b", "c"}
    world.table.set_aggregate(1, ["b"], {"os_distro": "debian"})
    assert world.fitting(wanted) == {"a", "c"}


def claim(world: Any, host: str, instance: str) -> Claim:
    made = Claim(instance=InstanceUuid(instance), attempt=1, node=NodeUuid(f"node-{host}"), resources={"VCPU": 1})
    world.claims.assume(made)
    return made


def still_fits(world: Any, spec: Any, host: str, *claims: Claim) -> bool:
    """Tell what is said of a record when one more claim is to be stored in it."""
    node = NodeUuid(f"node-{host}")
    usage = world.table.usages[world.table.row_of[node]]
    return bool(world.placement.still_fits(placement_request(spec), node, usage, claims))


@pytest.mark.parametrize(
    ("name", "option", "field"),
    [
        ("IoOpsFilter", "max_io_ops_per_host", "io_ops"),
        ("AggregateIoOpsFilter", "max_io_ops_per_host", "io_ops"),
        ("NumInstancesFilter", "max_instances_per_host", "instances"),
        ("NumInstancesFilter", "max_instances_per_host", "servers"),
        ("AggregateNumInstancesFilter", "max_instances_per_host", "instances"),
        ("AggregateNumInstancesFilter", "max_instances_per_host", "servers"),
    ],
)
def test_no_more_than_so_many_for_each_host(make_world: Any, spec: Any, name: str, option: str, field: str) -> None:
    world = world_with(make_world, name, **{option: 3})
    world.host("idle")
    world.host("busy", used={"VCPU": 1}, **{field: 2})
    world.host("full", used={"VCPU": 1}, **{field: 3})
    assert world.fitting() == {"idle", "busy"}
    assert {host for host in ("idle", "busy", "full") if still_fits(world, spec(), host)} == {"idle", "busy"}
    one = claim(world, "busy", "one")
    assert world.fitting() == {"idle"}
    assert not still_fits(world, spec(), "busy", one)
    for number in range(3):
        claim(world, "idle", f"i{number}")
    assert world.fitting() == set()


@pytest.mark.parametrize(
    ("name", "key", "field"),
    [
        ("AggregateIoOpsFilter", "max_io_ops_per_host", "io_ops"),
        ("AggregateNumInstancesFilter", "max_instances_per_host", "instances"),
    ],
)
@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("3", None, True),
        ("2", None, False),
        ("2", "9", False),
        ("9", "2", False),
        ("9", "none", False),
        (None, None, False),
    ],
)
def test_the_least_limit_of_a_hosts_aggregates(
    make_world: Any, spec: Any, name: str, key: str, field: str, first: str | None, second: str | None, fits: bool
) -> None:
    """The last but one: what is no number leaves the option in force, here 1."""
    world = world_with(make_world, name, **{key: 1})
    world.host("a", **{field: 2})
    for number, limit in enumerate((first, second)):
        world.table.set_aggregate(number, ["a"], {key: limit} if limit else {})
    assert bool(world.fitting()) is fits
    usage = world.table.usages[world.table.row_of["node-a"]]
    assert world.placement.still_fits(placement_request(spec()), NodeUuid("node-a"), usage, ()) is fits


@pytest.mark.parametrize(("limit", "servers"), [("5", 5), ("9" * 200, 16), ("-" + "9" * 200, 0)])
def test_any_number_of_an_aggregate_can_be_counted_with(make_world: Any, spec: Any, limit: str, servers: int) -> None:
    world = world_with(make_world, "AggregateNumInstancesFilter")
    world.host("a", vcpus=4, cpu_ratio=4.0)
    world.table.set_aggregate(1, ["a"], {"max_instances_per_host": limit})
    hosts = HostView(world.table)
    request = placement_request(spec())
    (chosen,) = made_by_aggregate(PlacementOptions())
    room = stage_of(chosen).room
    assert room is not None
    assert min(int(room(hosts, request)[0]), 16) == servers
    assert bool(world.fitting()) is (servers > 0)


def test_reports_that_change_nothing_but_the_numbers_count(make_world: Any, usage: Any) -> None:
    world = world_with(make_world, "NumInstancesFilter", max_instances_per_host=2)
    node = world.host("a", instances=1)
    assert world.fitting() == {"a"}
    world.table.set_report(node, "cell-1", usage("a", instances=2))
    assert world.why() == "1 host considered; 0 left by servers per host"
    world.table.drop_report(node)
    world.table.set_report(node, "cell-1", usage("a"))
    assert world.fitting() == {"a"}
