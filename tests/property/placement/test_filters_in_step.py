"""Whatever filters and weighers an operator chooses, what is kept of earlier decisions is what would be found anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.placement import registry
from skep.placement.choice import Choice, NoHost
from skep.placement.claims import ClaimIndex
from skep.placement.groups import GroupIndex
from skep.placement.hosts.table import HostTable
from skep.placement.options import PlacementOptions
from skep.placement.placement import Placement
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import DEFAULT_WEIGHERS, SchedulerSettings
from tests.support.samples import examples

CELL = CellUuid("cell-1")
HOSTS = tuple(f"h{number}" for number in range(6))
NODES = {host: NodeUuid(f"node-{host}") for host in HOSTS}
OPTIONS = PlacementOptions(
    max_io_ops_per_host=4,
    max_instances_per_host=5,
    isolated_images=("secret",),
    isolated_hosts=("h0", "h1"),
    metrics_weight_setting={"cpu.percent": -0.5},
    limit_tenants_to_placement_aggregate=True,
    enable_isolated_aggregate_filtering=True,
)
FILTERS = (*registry.FILTERS, *registry.CONFIGURED, "ComputeCapabilitiesFilter")


def image(number: str, **properties: str) -> Image:
    return Image(id=number, properties=properties)


def spec(extra_specs: dict[str, str], of: Image | None, project: str, hints: dict[str, object]) -> RequestSpec:
    flavor = Flavor(flavorid="f", name="small", vcpus=1, memory_mb=64, extra_specs=extra_specs)
    return RequestSpec(
        project_id=ProjectId(project), user_id=UserId("u"), flavor=flavor, image=of, scheduler_hints=hints
    )


requests = st.builds(
    lambda *parts: placement_request(spec(*parts), options=OPTIONS),
    st.sampled_from(
        [
            {},
            {"capabilities:cpu_info:arch": "x86_64"},
            {"capabilities:free_ram_mb": ">= 600", "rack": "r1"},
            {"trait:CUSTOM_A": "required"},
        ]
    ),
    st.sampled_from(
        [None, image("open", hw_architecture="x86_64"), image("secret"), image("open", os_distro="debian")]
    ),
    st.sampled_from(["mine", "other"]),
    st.sampled_from(
        [
            {},
            {"query": '["<", "$num_instances", 3]'},
            {"query": '["=", "$cpu_info.arch", "aarch64"]'},
            {"build_near_host_ip": "10.0.1.1"},
        ]
    ),
)

reports = st.builds(
    lambda host, arch, address, instances, io_ops, metrics, images: HostUsage(
        host=host,
        inventory={"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=1024)},
        used={"VCPU": instances, "MEMORY_MB": 64 * instances},
        traits=("CUSTOM_A",) if arch == "x86_64" else (),
        cpu_info={"arch": arch},
        supported_instances=((arch, "kvm", "hvm"),),
        hypervisor_version=len(arch) * 1_000_000,
        host_ip=address,
        instances=instances,
        io_ops=io_ops,
        metrics=metrics,
        stats={"rack": "r1"} if io_ops else {},
        image_properties=images,
    ),
    st.sampled_from(HOSTS),
    st.sampled_from(["x86_64", "aarch64"]),
    st.sampled_from(["10.0.1.7", "10.0.2.7", ""]),
    st.integers(0, 5),
    st.integers(0, 4),
    st.sampled_from([{"cpu.percent": 0.25}, {"cpu.percent": 0.75}, {}]),
    st.sampled_from([{}, {"os_distro=debian": 2}]),
)
metadata = st.dictionaries(
    st.sampled_from(
        [
            "filter_tenant_id",
            "instance_type",
            "os_distro",
            "trait:CUSTOM_A",
            "max_io_ops_per_host",
            "max_instances_per_host",
            "cpu_weight_multiplier",
            "num_instances_weight_multiplier",
            "image_props_weight_multiplier",
        ]
    ),
    st.sampled_from(["mine", "small", "debian", "required", "1", "3", "-2.5"]),
    max_size=3,
)
events = st.one_of(
    st.tuples(st.just("report"), reports),
    st.tuples(st.just("place"), requests),
    st.tuples(st.just("place"), requests),
    st.tuples(st.just("leave"), st.integers(0, 50)),
    st.tuples(st.just("aggregate"), st.tuples(st.integers(1, 2), st.sets(st.sampled_from(HOSTS)), metadata)),
)


class Cloud:
    """A table that changes, and a placement that is asked again and again."""

    def __init__(self, chosen: SchedulerSettings) -> None:
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.groups = GroupIndex()
        self.chosen = chosen
        self.kept = Placement(self.table, self.groups, chosen)
        self.held: list[Claim] = []
        self.servers = 0
        self.table.set_cell(CELL, known=True, asserted=True, living=True)
        for host, node in NODES.items():
            self.table.set_intent(HostIntent(node=node, host=host, cell=CELL))
        self.table.set_heard(CELL, tuple(NODES.values()), 1)

    def tell(self, kind: str, event: Any) -> None:
        if kind == "report":
            self.table.set_report(NODES[event.host], CELL, event)
        elif kind == "leave" and self.held:
            self.claims.drop(self.held.pop(event % len(self.held)))
        elif kind == "aggregate":
            self.table.set_aggregate(*event)
        elif kind == "place":
            self.place(event)

    def place(self, request: PlacementRequest) -> None:
        instance = InstanceUuid(f"i{self.servers}")
        self.servers += 1
        found = self.kept.choose(request, instance, seed=1)
        afresh = Placement(self.table, self.groups, self.chosen).choose(request, instance, seed=1)
        assert said(found) == said(afresh)
        if isinstance(found, Choice):
            self.held.append(Claim(instance=instance, attempt=1, node=found.node, resources=request.spec.resources()))
            self.claims.assume(self.held[-1])


def said(found: Choice | NoHost) -> Any:
    if isinstance(found, NoHost):
        return found.stages
    explained = found.explanation
    return found.node, found.alternates, explained.stages, explained.scores


chosen_filters = st.lists(st.sampled_from(FILTERS), unique=True, max_size=5).map(tuple)


@pytest.mark.parametrize("normalization", ["host", "min-max"])
@settings(max_examples=examples(30))
@given(chosen_filters, st.lists(reports, min_size=3, max_size=6), st.lists(events, min_size=5, max_size=25))
def test_kept_answers_are_what_new_ones_are(
    normalization: Any, filters: tuple[str, ...], told: list[HostUsage], story: list[tuple[str, Any]]
) -> None:
    weighers = {**DEFAULT_WEIGHERS, "NumInstancesWeigher": 0.0, "ImagePropertiesWeigher": 0.0}
    cloud = Cloud(SchedulerSettings(filters=filters, weighers=weighers, options=OPTIONS, normalization=normalization))
    for usage in told:
        cloud.tell("report", usage)
    for kind, event in story:
        cloud.tell(kind, event)
