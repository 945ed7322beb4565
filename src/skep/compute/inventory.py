"""What a host offers: the driver's facts under the operator's ratios and reserves."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.compute.settings import ComputeSettings
from skep.domain.capabilities import CONFIG_DRIVE_TRAIT, Capability
from skep.domain.errors import Misconfigured
from skep.domain.hosts import HostFacts, HostUsage
from skep.domain.providers import Allocation, Topology
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory


def offered(facts: HostFacts, settings: ComputeSettings) -> dict[str, Inventory]:
    """Return the inventory with ratios and reserves applied; classes that the operator cannot set stay the driver's.

    The operator's reserves are beside those of the driver. A reserved disk amount is rounded up to GiB.
    """
    set_by_operator = {
        VCPU: (settings.reserved_host_cpus, settings.cpu_allocation_ratio),
        MEMORY_MB: (settings.reserved_host_memory_mb, settings.ram_allocation_ratio),
        DISK_GB: (-(-settings.reserved_host_disk_mb // 1024), settings.disk_allocation_ratio),
    }
    inventory = dict(facts.inventory)
    for resource_class, (reserved, ratio) in set_by_operator.items():
        if resource_class in inventory:
            total, own = inventory[resource_class].total, inventory[resource_class].reserved
            kept = min(own + reserved, total)
            inventory[resource_class] = Inventory(total=total, reserved=kept, allocation_ratio=ratio)
    for provider in settings.providers:
        for resource_class, one in provider.inventory.items():
            inventory[resource_class] = _with(inventory.get(resource_class), one)
    return inventory


def _with(other: Inventory | None, one: Inventory) -> Inventory:
    """Return what two providers have of a class: where their ratios differ, as what may be promised."""
    if other is None:
        return one
    if other.allocation_ratio == one.allocation_ratio == 1.0:
        return Inventory(total=other.total + one.total, reserved=other.reserved + one.reserved)
    return Inventory(total=other.capacity + one.capacity)


def _inside(facts: HostFacts, settings: ComputeSettings) -> Topology | None:
    """Return the inside of a host as its driver says it, with the providers that the operator gives it.

    Raises Misconfigured where two have one name.
    """
    if not settings.providers:
        return facts.topology
    found = facts.topology or Topology()
    names = {one.name for one in found.providers}
    for one in settings.providers:
        if one.name in names:
            raise Misconfigured(f"compute.providers: name: the host has another provider `{one.name}`")
        names.add(one.name)
    return msgspec.structs.replace(found, providers=(*found.providers, *settings.providers))


def idle_usage(
    host: str,
    facts: HostFacts,
    settings: ComputeSettings,
    started_at: int,
    capabilities: frozenset[Capability] = frozenset(),
) -> HostUsage:
    """Return what the host reports when nothing runs on it. What placement has to know of its driver is a trait."""
    told: dict[str, Any] = {name: getattr(facts, name) for name in HostFacts.__struct_fields__}
    inventory = told["inventory"] = offered(facts, settings)
    told["topology"] = _inside(facts, settings)
    if Capability.CONFIG_DRIVE in capabilities:
        told["traits"] = (*facts.traits, CONFIG_DRIVE_TRAIT)
    return HostUsage(**told, host=host, used=dict.fromkeys(inventory, 0), started_at=started_at)


def with_use(
    idle: HostUsage,
    *,
    used: dict[str, int],
    servers: int,
    failed_builds: int,
    taken: Allocation | None = None,
    io_ops: int = 0,
    image_properties: dict[str, int] | None = None,
    expected_end: int | None = None,
    clock_ahead: float = 0.0,
    capabilities: tuple[str, ...] = (),
    hung_calls: tuple[str, ...] = (),
    unfit: str = "",
) -> HostUsage:
    """Return `idle` with what changes from report to report. Every build under way will be a server.

    All of a host that is `unfit` is reserved, so that schedulers of any release give it no builds.
    """
    return msgspec.structs.replace(
        idle,
        inventory=_all_reserved(idle.inventory) if unfit else idle.inventory,
        capabilities=capabilities,
        hung_calls=hung_calls,
        unfit=unfit,
        used=used,
        servers=servers,
        failed_builds=failed_builds,
        taken=taken,
        instances=servers + io_ops,
        io_ops=io_ops,
        image_properties=image_properties or {},
        expected_end=expected_end,
        clock_ahead=clock_ahead,
    )


def _all_reserved(inventory: dict[str, Inventory]) -> dict[str, Inventory]:
    return {
        resource_class: msgspec.structs.replace(one, reserved=one.total) for resource_class, one in inventory.items()
    }
