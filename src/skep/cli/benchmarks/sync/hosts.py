"""The made-up hosts of the benchmark: equal ones in one cell, each with room for twenty servers."""

from __future__ import annotations

import time

from skep.domain.cells import HostIntent
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.messages.to_scheduler import HostReport

CELL = CellUuid("00000000-0000-4000-8000-000000000001")
PLACES = 20
"""Servers that fit on one host."""
FLAVOR = Flavor(flavorid="1", name="bench", vcpus=4, memory_mb=8192, root_gb=20)
SPEC = RequestSpec(project_id=ProjectId("1" * 32), user_id=UserId("2" * 32), flavor=FLAVOR)
INVENTORY = {
    VCPU: Inventory(total=FLAVOR.vcpus * PLACES // 4, allocation_ratio=4.0),
    MEMORY_MB: Inventory(total=FLAVOR.memory_mb * PLACES),
    DISK_GB: Inventory(total=FLAVOR.root_gb * PLACES),
}
TRAITS = tuple(f"HW_CPU_X86_{name}" for name in ("AVX", "AVX2", "AESNI", "SSE41", "SSE42", "FMA3", "BMI", "BMI2"))


def node_of(number: int) -> NodeUuid:
    """Return the node of a host."""
    return NodeUuid(f"00000000-0000-4000-9000-{number:012x}")


def name_of(number: int) -> str:
    """Return the name of a host."""
    return f"bench-{number:06}"


def intent(number: int) -> HostIntent:
    """Return the operator's mapping of a host."""
    return HostIntent(node=node_of(number), host=name_of(number), cell=CELL)


def report(number: int, servers: int) -> HostReport:
    """Return a report of a host that runs so many servers. Its `seq` is the time: readers tell its age from it."""
    return HostReport(
        node=node_of(number),
        cell=CELL,
        incarnation=1,
        seq=stamp(),
        usage=HostUsage(
            host=name_of(number),
            inventory=INVENTORY,
            used={name: amount * servers for name, amount in FLAVOR.resources().items()} if servers else {},
            traits=TRAITS,
            servers=servers,
            hypervisor_type="fake",
            hypervisor_hostname=name_of(number),
            host_ip="127.0.0.1",
        ),
    )


def stamp() -> int:
    """Return the machine's monotonic clock in microseconds: the same in all processes of one machine."""
    return time.monotonic_ns() // 1000
