"""Clouds, requests and sequences of events, as strategies for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule, SpreadConstraint
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.lifetimes import Lifetime
from skep.domain.namespaces import NamespaceField, Schema
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.registry import CONFIGURED, FAMILIES, FILTERS
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import DEFAULT_FILTERS, SchedulerSettings
from skep_lab.reference_scheduler.weighers import SCORES
from tests.support.reference_stories import attribute_stories as attributes
from tests.support.reference_stories.pair import Pair

NODES = tuple(NodeUuid(f"n{number}") for number in range(7))
HOSTS = tuple(f"host-{number}" for number in range(7))
CELLS = (CellUuid("cell-0"), CellUuid("cell-1"))
TRAITS = ("CUSTOM_A", "CUSTOM_B")
VOLUME = Schema(fields={"free_gb": NamespaceField(type="integer"), "volumes": NamespaceField(type="strings")})

numbers = st.integers(0, len(NODES) - 1)
hosts = st.sampled_from(HOSTS)
cells = st.sampled_from(CELLS)


def _usage(
    number: int, facts: tuple[int, int, int, int], traits: tuple[str, ...], failed: int, more: dict[str, Any]
) -> HostUsage:
    vcpus, memory, disk, used = facts
    return HostUsage(
        host=HOSTS[number],
        inventory={
            VCPU: Inventory(total=vcpus, allocation_ratio=1.5),
            MEMORY_MB: Inventory(total=memory, reserved=min(64, memory)),
            **({DISK_GB: Inventory(total=disk)} if disk else {}),
        },
        used={VCPU: used} if used else {},
        traits=traits,
        failed_builds=failed,
        hypervisor_hostname=f"{HOSTS[number]}.example",
        **more,
    )


def usages(number: int) -> st.SearchStrategy[HostUsage]:
    """Return what the host of this number may report."""
    facts = st.tuples(
        st.sampled_from([8, 8, 4, 2, 0]),
        st.sampled_from([2048, 1024, 512, 64]),
        st.sampled_from([10, 10, 0]),
        st.integers(0, 3),
    )
    told = st.one_of(st.just({}), attributes.told)
    traits = st.sets(st.sampled_from(TRAITS)).map(lambda names: tuple(sorted(names)))
    return st.builds(_usage, st.just(number), facts, traits, st.sampled_from([0, 0, 0, 1, 2]), told)


def _mostly(usual: Any, *others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the usual value three times of four, else one of the others: what asks for too much is never placed."""
    return st.integers(0, 3).flatmap(lambda number: st.one_of(*others) if number == 3 else st.just(usual))


metadata = attributes.some(
    {
        "availability_zone": ("east", "west", ""),
        "tier": ("gold", "silver", "gold, silver", "3", "10"),
        "rack": ("r1", "r2", ""),
        "ram_weight_multiplier": ("-2", "5.5", "much", "inf"),
        "soft_anti_affinity_weight_multiplier": ("0", "3"),
        **attributes.METADATA,
    },
    5,
)
extra_specs = attributes.some(
    {
        "trait:CUSTOM_A": ("required", "forbidden"),
        "aggregate_instance_extra_specs:tier": ("gold", ">= 5", "<or> silver <or> 3"),
        "volume:free_gb": (">= 5", "10", "many"),
        **attributes.EXTRA_SPECS,
    },
    2,
)
flavors = st.builds(
    lambda vcpus, memory, disk, specs, name: Flavor(
        flavorid="1", name=name, vcpus=vcpus, memory_mb=memory, root_gb=disk, extra_specs=specs
    ),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([32, 32, 64, 256]),
    st.sampled_from([0, 0, 0, 4]),
    _mostly({}, extra_specs),
    st.sampled_from(["small", "small", "large"]),
)
groups = st.builds(
    lambda number, policy, most, spread: GroupRule(
        uuid=GroupUuid(f"{policy}-{number}-{most}"), policy=policy, max_server_per_host=most, spread=spread
    ),
    st.integers(0, 1),
    st.sampled_from(["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]),
    st.integers(1, 2),
    st.lists(
        st.builds(
            SpreadConstraint,
            key=st.sampled_from(["host", "rack", "zone"]),
            max_skew=st.integers(1, 2),
            hard=st.booleans(),
        ),
        max_size=2,
        unique_by=lambda constraint: constraint.key,
    ).map(tuple),
)
_destinations = _mostly(
    {},
    st.fixed_dictionaries({"availability_zone": st.sampled_from(["nova", "east", "nowhere"])}),
    st.fixed_dictionaries({"forced_host": hosts}),
    st.fixed_dictionaries({"forced_node": hosts.map(lambda name: f"{name}.example")}),
    st.fixed_dictionaries({"requested_host": hosts}),
    st.fixed_dictionaries({"requested_node": hosts.map(lambda name: f"{name}.example")}),
)
_hints = _mostly(
    {},
    st.fixed_dictionaries({"same_host_names": st.lists(hosts, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"different_host_names": st.lists(hosts, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"ignore_hosts": st.lists(hosts, max_size=3).map(tuple)}),
    st.fixed_dictionaries({"required_aggregates": st.lists(st.integers(1, 2), max_size=2).map(tuple)}),
    st.fixed_dictionaries({"scheduler_hints": st.just({"same_host_as_volume": "v1"})}),
    *[st.fixed_dictionaries({"scheduler_hints": attributes.hints})] * 2,
)


def _request(
    flavor: Flavor,
    group: GroupRule | None,
    where: dict[str, Any],
    hints: dict[str, Any],
    limits: dict[str, Any],
    who: tuple[str, Image | None],
    lifetime: Lifetime | None,
) -> PlacementRequest:
    project, image = who
    spec = RequestSpec(
        project_id=ProjectId(project),
        user_id=UserId("u"),
        flavor=flavor,
        image=image,
        group=group,
        lifetime=lifetime,
        **{**where, **hints},
    )
    return placement_request(spec, **limits)


_nodes = st.lists(st.sampled_from(NODES), max_size=2).map(tuple)
_limits = _mostly(
    {"alternates": 10},
    st.fixed_dictionaries({"alternates": st.sampled_from([0, 2])}),
    st.fixed_dictionaries({"prefer": _nodes}),
    st.fixed_dictionaries({"ignore": _nodes}),
    st.fixed_dictionaries({"cell": cells}),
    st.fixed_dictionaries({"exclude_cells": st.tuples(cells)}),
    st.fixed_dictionaries({"source_cell": cells}),
)
_who = st.tuples(st.sampled_from(["p", "p", "q"]), _mostly(None, attributes.images))
_lifetimes = st.sampled_from([*[None] * 8, *attributes.LIFETIMES])
requests = st.builds(_request, flavors, _mostly(None, groups), _destinations, _hints, _limits, _who, _lifetimes)

ALWAYS = (*DEFAULT_FILTERS, "VolumeFilter")
TO_CHOOSE = tuple(name for name in (*FILTERS, *FAMILIES, *CONFIGURED) if name not in ALWAYS)

settings = st.builds(
    lambda more, weights, subset, options, way: SchedulerSettings(
        filters=(*ALWAYS, *sorted(more)),
        weighers={name: one for name, one in weights.items() if one},
        host_subset_size=subset,
        options=options,
        normalization=way,
    ),
    st.sets(st.sampled_from(TO_CHOOSE), max_size=4),
    st.fixed_dictionaries({name: st.sampled_from([1.0, 1.0, 0.0, -1.0, 2.5]) for name in SCORES}),
    st.sampled_from([1, 1, 1, 3]),
    attributes.options,
    st.sampled_from(["host", "host", "min-max"]),
)

_event_of = {
    "report": numbers.flatmap(lambda number: st.tuples(st.just(number), cells, st.none() | usages(number))),
    "wish": st.tuples(numbers, cells, st.sampled_from(["", "", "disabled", "forced_down", "unmapped"])),
    "cell": st.tuples(cells, st.sampled_from(["known", "asserted", "living", "disabled"]), st.booleans()),
    "heard": st.tuples(cells, st.sets(st.sampled_from(NODES), min_size=4)),
    "aggregate": st.tuples(st.integers(1, 3), st.sets(hosts), st.none() | metadata),
    "state": st.tuples(
        hosts,
        st.none()
        | st.fixed_dictionaries(
            {}, optional={"free_gb": st.integers(0, 12), "volumes": st.lists(st.sampled_from(["v1", "v2"]))}
        ),
    ),
    "leave": st.integers(0, 100),
    "settle": st.integers(0, 100),
    "twins": st.tuples(requests, st.integers(0, 1)),
    "place": st.tuples(requests, st.sampled_from([1, 1, 1, 2, 4]), st.integers(1, 3), st.integers(0, 1)),
}
_weights = {"place": 16, "leave": 4, "settle": 3, "report": 2, "aggregate": 2}
events = st.sampled_from([name for name in _event_of for _ in range(_weights.get(name, 1))]).flatmap(
    lambda name: st.tuples(st.just(name), _event_of[name])
)
histories = st.lists(events, min_size=6, max_size=30)
beginnings = st.tuples(*(usages(number) for number in range(len(NODES))))
"""What each host reports first."""


def begin(chosen: SchedulerSettings, reports: tuple[HostUsage, ...]) -> Pair:
    """Return a cloud in which every host is ready."""
    pair = Pair(chosen)
    pair.schema("volume", VOLUME)
    for cell in CELLS:
        pair.cell(cell, known=True, disabled=False, asserted=True, living=True)
        pair.heard(cell, NODES)
    for number, usage in enumerate(reports):
        pair.wish(NODES[number], HOSTS[number], CELLS[number % 2])
        pair.report(NODES[number], CELLS[number % 2], usage)
    pair.aggregate(1, HOSTS[:3], {"availability_zone": "east", "tier": "gold, 7", "max_instances_per_host": "2"})
    pair.aggregate(
        2, HOSTS[2:5], {"tier": "silver", "rack": "r1", "filter_tenant_id": "q", "max_instances_per_host": "4"}
    )
    pair.aggregate(3, HOSTS[4:], {"rack": "r2", "instance_type": "large", "os_distro": "debian"})
    for number, name in enumerate(HOSTS[1:4]):
        pair.state("volume", name, {"free_gb": 4 * number, "volumes": [f"v{number}"]})
    return pair


def _twins(request: PlacementRequest) -> list[PlacementRequest]:
    """Return requests that differ in what few filters read: what is kept of one must not be said of the others."""
    spec = request.spec
    image = Image(id="guarded", properties={"os_distro": "windows"})
    near = {"build_near_host_ip": "10.0.1.1"}
    changed = (
        replace(spec, project_id=ProjectId("q")),
        replace(spec, flavor=replace(spec.flavor, name="large")),
        replace(spec, image=image),
        replace(spec, scheduler_hints=near),
        replace(spec, lifetime=attributes.LIFETIMES[1]),
    )
    return [placement_request(one) for one in (spec, *changed)]


def tell(pair: Pair, event: tuple[str, Any]) -> None:
    """Tell or ask both schedulers. Raises AssertionError where they differ."""
    kind, what = event
    if kind == "report":
        number, cell, usage = what
        pair.report(NODES[number], cell, usage)
    elif kind == "wish":
        number, cell, flag = what
        if flag == "unmapped":
            pair.unmap(NODES[number])
        else:
            pair.wish(
                NODES[number], HOSTS[number], cell, disabled=flag == "disabled", forced_down=flag == "forced_down"
            )
    elif kind == "cell":
        cell, flag, value = what
        pair.cell(cell, **{flag: value})
    elif kind == "heard":
        pair.heard(what[0], sorted(what[1]))
    elif kind == "aggregate":
        number, names, facts = what
        pair.aggregate(number, sorted(names), facts)
    elif kind == "state":
        pair.state("volume", *what)
    elif kind == "leave":
        pair.leave(what)
    elif kind == "settle":
        pair.settle(what)
    elif kind == "twins":
        request, seed = what
        for twin in _twins(request):
            pair.place(twin, seed=seed)
    else:
        request, members, minimum, seed = what
        pair.place(request, members=members, min_count=min(minimum, members), seed=seed)
