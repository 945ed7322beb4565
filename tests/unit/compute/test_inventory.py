"""What a host offers: what its driver says, less the reserves of both driver and operator."""

from __future__ import annotations

import pytest

from skep.compute.inventory import offered
from skep.compute.settings import ComputeSettings
from skep.domain.hosts import HostFacts
from skep.domain.resources import DISK_GB, Inventory


@pytest.mark.parametrize(("reserved_mb", "left"), [(0, 97), (1500, 95), (1 << 20, 0)])
def test_reserves_of_the_driver_count_beside_those_of_the_operator(reserved_mb: int, left: int) -> None:
    facts = HostFacts(
        inventory={DISK_GB: Inventory(total=100, reserved=3)},
        hypervisor_type="QEMU",
        hypervisor_version=1,
        hypervisor_hostname="host",
    )
    assert offered(facts, ComputeSettings(reserved_host_disk_mb=reserved_mb))[DISK_GB].capacity == left
