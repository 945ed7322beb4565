"""Hosts with an inside, and requests for parts of it: for tests, benchmarks and simulations."""

from __future__ import annotations

from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import ProjectId, UserId
from skep.domain.nested.wanted import Affinity, DeviceMatch, DeviceRequest
from skep.domain.providers import NumaCell, Provider, Topology
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory

GPU = "CUSTOM_PCI_10DE_1EB8"
NIC = "CUSTOM_PCI_8086_1572"
SMALL_KIB, HUGE_KIB = 4, 2048


def host_with_inside(
    host: str = "host",
    *,
    cells: int = 2,
    cores: int = 16,
    threads: int = 2,
    shared: int = 8,
    memory_mb: int = 131_072,
    huge_mb: int = 65_536,
    gpus: int = 2,
    nics: int = 4,
    vgpus: int = 0,
) -> HostUsage:
    """Return the report of an idle host; amounts are those of each NUMA cell, `cores` those that may be pinned."""
    pinned = cells * cores * threads
    inventory = {
        "VCPU": Inventory(total=cells * shared, allocation_ratio=4.0),
        "PCPU": Inventory(total=pinned),
        "MEMORY_MB": Inventory(total=cells * memory_mb),
        "DISK_GB": Inventory(total=4000),
    }
    pools = {GPU: gpus, NIC: nics, "VGPU": vgpus}
    inventory |= {name: Inventory(total=cells * count) for name, count in pools.items() if count}
    providers = [_pool(name, number, count) for number in range(cells) for name, count in pools.items() if count]
    return HostUsage(
        host=host,
        inventory=inventory,
        used={},
        hypervisor_hostname=host,
        topology=Topology(
            cells=tuple(_cell(number, cores, threads, shared, memory_mb, huge_mb) for number in range(cells)),
            providers=tuple(providers),
        ),
    )


def _cell(number: int, cores: int, threads: int, shared: int, memory_mb: int, huge_mb: int) -> NumaCell:
    first = number * cores * threads
    pages = {SMALL_KIB: (memory_mb - huge_mb) * 1024 // SMALL_KIB}
    if huge_mb:
        pages[HUGE_KIB] = huge_mb * 1024 // HUGE_KIB
    return NumaCell(
        number=number,
        socket=number,
        cores=tuple(tuple(first + core * threads + thread for thread in range(threads)) for core in range(cores)),
        shared_cpus=shared,
        pages=pages,
    )


def _pool(name: str, number: int, count: int) -> Provider:
    vendor, product = name.lower().split("_")[-2:] if name.startswith("CUSTOM_PCI") else ("", "")
    return Provider(
        name=f"{name.lower()}-{number}",
        inventory={name: Inventory(total=count)},
        traits=("CUSTOM_FIRST",) if number == 0 else (),
        devices=tuple(f"{vendor}:{number}:{unit}" for unit in range(count)) if vendor else (),
        numa=number,
        vendor_id=vendor,
        product_id=product,
        dev_type="type-PCI" if vendor else "",
    )


def devices(resource_class: str = GPU, count: int = 1, affinity: Affinity = "legacy") -> DeviceRequest:
    """Return a request for devices of one class."""
    match = DeviceMatch(resource_class=resource_class)
    return DeviceRequest(alias=resource_class.lower(), count=count, matches=(match,), affinity=affinity)


def spec_for_parts(
    vcpus: int, memory_mb: int, extra_specs: dict[str, str], *requests: DeviceRequest, root_gb: int = 1
) -> RequestSpec:
    """Return a request for parts of a host."""
    flavor = Flavor(
        flavorid="parts", name="parts", vcpus=vcpus, memory_mb=memory_mb, root_gb=root_gb, extra_specs=extra_specs
    )
    return RequestSpec(project_id=ProjectId("project"), user_id=UserId("user"), flavor=flavor, devices=requests)


def numa_mix() -> tuple[RequestSpec, ...]:
    """Return fifty kinds of requests with NUMA cells, pinned CPUs, huge pages and devices, as a telco's would be."""
    found = []
    for number in range(50):
        vcpus = (2, 4, 4, 8, 8, 12, 16)[number % 7]
        memory = vcpus * (1024, 2048, 4096)[number % 3]
        specs = {"hw:cpu_policy": "dedicated"}
        if number % 2:
            specs["hw:mem_page_size"] = "large"
        if number % 5 == 0:
            specs["hw:numa_nodes"] = "2"
        if number % 4 == 1:
            specs["hw:cpu_thread_policy"] = "require"
        if number % 10 == 3:
            specs = {"hw:numa_nodes": "1", "hw:mem_page_size": "small"}
        asked = []
        if number % 3 == 1:
            asked.append(devices(NIC, 1 + number % 2, "required"))
        if number % 11 == 2:
            asked.append(devices(GPU, 1, "preferred"))
        found.append(spec_for_parts(vcpus, memory + 256 * (number // 7), specs, *asked))
    return tuple(found)
