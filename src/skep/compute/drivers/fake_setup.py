"""Makes a fake driver from the configuration's section `[compute.fake]`: the entry point `fake`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from skep.compute.drivers.capabilities import PROTOCOLS
from skep.compute.drivers.fake import FailureRule, FakeDriver, FakeSettings
from skep.compute.drivers.fake_topology import FakeDevices, FakeTopology
from skep.compute.drivers.registry import DriverSetup
from skep.config.compute import FakeDriverSettings
from skep.domain.capabilities import Capability


class NoOptions(msgspec.Struct, frozen=True):
    """The options of the fake driver are a section of their own."""


def make(setup: DriverSetup) -> FakeDriver:
    """Return the driver of a fake host. Raises Misconfigured for options: `[compute.fake]` holds them."""
    setup.options(NoOptions)
    section = setup.section.fake
    lacks = section.lacks if section.attaches else (*section.lacks, Capability.ATTACH_VOLUME)
    return lacking(lacks)(setup.directory, setup.host, fake_settings(section, setup.has_images), setup.clock)


def lacking(capabilities: Iterable[str]) -> type[FakeDriver]:
    """Return the class of fake drivers that have none of the calls of these capabilities."""
    calls = {name for one in capabilities for name in vars(PROTOCOLS[Capability(one)]) if not name.startswith("_")}
    # A call that is None is in the way of its protocol, as if it were not there.
    return cast("type[FakeDriver]", type(FakeDriver.__name__, (FakeDriver,), dict.fromkeys(calls)))


def fake_settings(section: FakeDriverSettings, images: bool = False) -> FakeSettings:
    """Return what fake hosts have and how they behave. `images`: their disks have the bytes of images."""
    return FakeSettings(
        images=images,
        vcpus=section.vcpus,
        memory_mb=section.memory_mb,
        disk_gb=section.disk_gb,
        inside=_inside(section) if section.numa_cells else None,
        spawn_delay=section.spawn_delay,
        destroy_delay=section.destroy_delay,
        power_delay=section.power_delay,
        copy_delay=section.copy_delay,
        plugs=section.plugs,
        networks=section.networks,
        interfaces_of_host=section.interfaces_of_host,
        attaches_interfaces=section.attaches_interfaces,
        failures=tuple(
            FailureRule(
                operation=rule.operation,
                host=rule.host,
                server=rule.server,
                error=rule.error,
                message=rule.message,
                times=None if rule.times < 0 else rule.times,
                after=rule.after,
                hangs=rule.hangs,
            )
            for rule in section.failures
        ),
    )


def _inside(section: FakeDriverSettings) -> FakeTopology:
    return FakeTopology(
        cells=section.numa_cells,
        dedicated_cpus=section.dedicated_cpus,
        threads=section.threads_per_core,
        huge_mb=section.huge_pages_mb,
        devices=tuple(
            FakeDevices(
                count=kind.count,
                resource_class=kind.resource_class,
                vendor_id=kind.vendor_id,
                product_id=kind.product_id,
                dev_type=kind.device_type,
                traits=kind.traits,
            )
            for kind in section.devices
        ),
    )
