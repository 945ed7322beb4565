"""A small world to place in: hosts by name, all ready, and a request for the smallest server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.placement.choice import Choice, NoHost
from skep.placement.claims import ClaimIndex
from skep.placement.groups import GroupIndex, GroupSlot
from skep.placement.hosts.table import HostTable
from skep.placement.placement import Placement
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import SchedulerSettings

CELL = CellUuid("cell-1")
GROUP = GroupUuid("group-1")


def usage_of(name: str, **changes: Any) -> HostUsage:
    facts: dict[str, Any] = {
        "host": name,
        "inventory": {
            "VCPU": Inventory(total=changes.pop("vcpus", 4), allocation_ratio=changes.pop("cpu_ratio", 4.0)),
            "MEMORY_MB": Inventory(total=changes.pop("memory_mb", 8192), reserved=512),
            "DISK_GB": Inventory(total=changes.pop("disk_gb", 100)),
        },
        "used": {},
        "hypervisor_hostname": f"{name}.example",
    }
    return HostUsage(**{**facts, **changes})


def flavor_of(vcpus: int = 1, memory_mb: int = 512, root_gb: int = 1, **extra_specs: str) -> Flavor:
    return Flavor(flavorid="1", name="tiny", vcpus=vcpus, memory_mb=memory_mb, root_gb=root_gb, extra_specs=extra_specs)


def spec_of(**changes: Any) -> RequestSpec:
    facts: dict[str, Any] = {"project_id": ProjectId("p"), "user_id": UserId("u"), "flavor": flavor_of()}
    return RequestSpec(**{**facts, **changes})


def rule_of(policy: Any, most: int = 1) -> GroupRule:
    return GroupRule(uuid=GROUP, policy=policy, max_server_per_host=most)


class World:
    """A table with its indexes; a node is called `node-HOST`."""

    def __init__(self, **settings: Any) -> None:
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.groups = GroupIndex()
        self.placement = Placement(self.table, self.groups, SchedulerSettings(**settings))
        self.beats: dict[CellUuid, tuple[NodeUuid, ...]] = {}

    def host(
        self,
        name: str,
        cell: CellUuid = CELL,
        *,
        disabled: bool = False,
        forced_down: bool = False,
        heard: bool = True,
        **usage: Any,
    ) -> NodeUuid:
        node = NodeUuid(f"node-{name}")
        self.table.set_cell(cell, known=True, asserted=True, living=True)
        self.table.set_intent(HostIntent(node=node, host=name, cell=cell, disabled=disabled, forced_down=forced_down))
        self.table.set_report(node, cell, usage_of(name, **usage))
        if heard:
            self.beats[cell] = (*self.beats.get(cell, ()), node)
        self.table.set_heard(cell, self.beats.get(cell, ()), 1)
        return node

    def member(self, host: str, instance: str = "member", attempt: int = 1) -> None:
        self.groups.assume(GROUP, GroupSlot(InstanceUuid(instance), attempt, NodeUuid(f"node-{host}")))

    def choose(self, spec: RequestSpec | None = None, instance: str = "i", **limits: Any) -> Choice | NoHost:
        request: PlacementRequest = placement_request(spec or spec_of(), **limits)
        return self.placement.choose(request, InstanceUuid(instance), seed=0)

    def fitting(self, spec: RequestSpec | None = None, **limits: Any) -> set[str]:
        """Return the names of all hosts that pass, found by asking for as many alternates."""
        chosen = self.choose(spec, alternates=100, **limits)
        if isinstance(chosen, NoHost):
            return set()
        return {chosen.host, *(other.host for other in chosen.alternates)}

    def fill(self, spec: RequestSpec) -> int:
        """Place servers and claim for them until none fits; return how many were placed."""
        request, number = placement_request(spec), 0
        while True:
            instance = InstanceUuid(f"i{number}")
            choice = self.placement.choose(request, instance, seed=0)
            if isinstance(choice, NoHost):
                return number
            allocation = self.placement.allocation(request, choice.node)
            self.claims.assume(
                Claim(
                    instance=instance, attempt=1, node=choice.node, resources=request.resources, allocation=allocation
                )
            )
            number += 1

    def why(self, spec: RequestSpec | None = None, **limits: Any) -> str:
        chosen = self.choose(spec, **limits)
        assert isinstance(chosen, NoHost)
        return chosen.explanation.summary()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture(name="usage")
def usage_fixture() -> Callable[..., HostUsage]:
    return usage_of


@pytest.fixture(name="spec")
def spec_fixture() -> Callable[..., RequestSpec]:
    return spec_of


@pytest.fixture(name="flavor")
def flavor_fixture() -> Callable[..., Flavor]:
    return flavor_of


@pytest.fixture(name="group")
def group_fixture() -> Callable[..., GroupRule]:
    return rule_of
