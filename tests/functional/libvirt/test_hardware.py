"""What flavors and images ask of a machine, as real libvirt and real QEMU take it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from skep.compute.drivers.base import ConsoleOutputDriver, Driver, DriverError, HostFacts, ImageDriver
from skep.compute.drivers.libvirt.domain import guest_xml
from skep.compute.drivers.libvirt.options import Options
from skep.contracts.eventually import eventually
from skep.domain.guest_keys import asked_of_guest
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState
from skep.domain.providers import Allocation, Provider
from skep.domain.resources import Inventory
from tests.support.agents import instance
from tests.support.libvirt_hosts import PARTS, connection_in, host_directory, libvirt_driver
from tests.support.libvirt_samples import SAMPLES, UEFI, Sample, cell, shape_of

pytestmark = [*PARTS, pytest.mark.timeout(600)]

MACHINES = {
    "q35": Sample(
        {
            "hw:watchdog_action": "pause",
            "hw:viommu_model": "intel",
            "hw_rng:rate_bytes": "1024",
            "quota:disk_total_iops_sec": "500",
            "hw:pmu": "no",
        },
        {
            "hw_machine_type": "q35",
            "hw_input_bus": "virtio",
            "hw_video_model": "virtio",
            "hw_sound_model": "ich9",
            "hw_disk_bus": "scsi",
        },
        (),
    ),
    "q35 with another IOMMU": Sample({"hw:viommu_model": "auto"}, {"hw_machine_type": "q35"}, ()),
    "cells": Sample(
        {"hw:numa_nodes": "1", "hw:mem_page_size": "small"},
        {},
        (),
        allocation=Allocation(cells=(cell(0, 1, pages={4: 96 * 256}),)),
    ),
    "pc": Sample(
        {"hw:boot_menu": "yes", "hw:usb_model": "nec-xhci", "hw_video:ram_max_mb": "16"},
        {
            "hw_input_bus": "usb",
            "hw_video_model": "vga",
            "hw_video_ram": "8",
            "hw_sound_model": "usb",
            "hw_disk_bus": "scsi",
            "hw_scsi_model": "lsilogic",
            "os_type": "windows",
        },
        (),
    ),
}
"""Machines with many parts at once: they start."""
FIRMWARE = pytest.mark.needs_part("/usr/share/qemu/firmware/60-edk2-x86_64.json")
"""What tests with UEFI need: the package `ovmf`."""


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    driver = libvirt_driver(host_directory())
    yield driver
    for guest in await driver.guests():
        await driver.destroy(guest.instance)
    driver.close()


def server(sample: Sample) -> Instance:
    flavor = msgspec.structs.replace(
        instance().flavor, memory_mb=96, vcpus=1, root_gb=0, ephemeral_gb=1, extra_specs=sample.specs
    )
    # It boots from nothing: the image is there for what it says.
    image = Image(id="image", disk_format="raw", properties=sample.properties)
    return msgspec.structs.replace(instance(), uuid=InstanceUuid(new_uuid()), flavor=flavor, vifs=(), image=image)


def gives(facts: HostFacts, sample: Sample) -> bool:
    """Tell whether the host takes what a sample asks for."""
    asked = asked_of_guest(sample.specs, sample.properties)
    assert facts.refused_keys is not None
    return asked is None or not list(facts.refused_keys.of(asked))


async def test_libvirt_finds_every_sample_valid(driver: Driver) -> None:
    """By its schema, and by what it knows of QEMU."""
    import libvirt

    facts = await driver.facts()
    connection = connection_in(host_directory())
    has_kvm = "<domain type='kvm'" in connection.getCapabilities()
    tried = 0
    for sample in SAMPLES.values():
        if (sample.virt_type == "kvm" and not has_kvm) or (sample.virt_type == "qemu" and not gives(facts, sample)):
            assert sample.needs == "uefi" or sample.virt_type == "kvm"
            continue
        xml = guest_xml(shape_of(sample, InstanceUuid(new_uuid())))
        domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        domain.undefine()
        if sample.virt_type == "qemu" and not sample.needs:
            connection.domainXMLToNative("qemu-argv", xml, 0)
        tried += 1
    assert tried > len(SAMPLES) // 2


async def start(driver: Driver, sample: Sample) -> Instance:
    assert gives(await driver.facts(), sample)
    one = server(sample)
    image = host_directory() / "empty.raw"
    image.write_bytes(bytes(1 << 20))
    assert isinstance(driver, ImageDriver)
    for resource in driver.plan(one, 1):
        if resource.from_image:
            await driver.prepare_from(one, 1, resource, image)
        else:
            await driver.prepare(one, 1, resource)
    assert await driver.spawn(one, 1, one.flavor.resources(), sample.allocation) is PowerState.RUNNING
    return one


@pytest.mark.parametrize("name", MACHINES)
async def test_a_machine_with_many_parts_starts(driver: Driver, name: str) -> None:
    await start(driver, MACHINES[name])


@FIRMWARE
async def test_a_machine_starts_with_uefi_and_secure_boot(driver: Driver) -> None:
    assert "COMPUTE_SECURITY_UEFI_SECURE_BOOT" in (await driver.facts()).traits
    await start(driver, Sample({}, {"hw_firmware_type": "uefi"}, ()))
    one = await start(driver, Sample({"os:secure_boot": "required"}, UEFI, ()))
    assert isinstance(driver, ConsoleOutputDriver)

    async def looks() -> bool:
        return b"BdsDxe" in await driver.console_output(one.uuid, 10_000)

    await eventually(looks, "the firmware looks for a system")
    assert list(host_directory().rglob(f"*{one.uuid}*VARS*"))
    await driver.destroy(one.uuid)
    assert not list(host_directory().rglob(f"*{one.uuid}*VARS*")), "its variables go with the guest"


async def test_what_the_host_told_that_it_refuses_it_refuses(driver: Driver) -> None:
    facts = await driver.facts()
    sample = Sample({"hw:cpu_policy": "dedicated"}, {}, ())
    assert not gives(facts, sample)
    with pytest.raises(DriverError, match="hw:cpu_policy"):
        driver.plan(server(sample), 1)


async def test_the_host_tells_of_its_inside(driver: Driver) -> None:
    from skep.compute.drivers.libvirt.facts import host_facts

    found = await driver.facts()
    assert found.topology is not None
    assert sum(cell.shared_cpus for cell in found.topology.cells) == found.inventory["VCPU"].total
    assert all(size >= 4 and count for cell in found.topology.cells for size, count in cell.pages.items())
    assert {"HW_ARCH_X86_64", "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_SOUND_MODEL_ICH9"} <= {*found.traits}
    assert "PCPU" not in found.inventory

    connection = connection_in(host_directory())
    if "<domain type='kvm'" not in connection.getCapabilities():
        return
    options = Options(virt_type="kvm", cpu_model="Nehalem", cpu_dedicated_set="0")
    card = Provider(name="mdev-card", inventory={"VGPU": Inventory(total=4)})
    pinned = host_facts(connection, "host", options, host_directory(), mediated=(card,))
    assert pinned.inventory["VGPU"].total == 4
    assert pinned.topology is not None
    assert pinned.topology.providers == (card,)
    assert pinned.inventory["PCPU"].total == 1
    assert "VCPU" not in pinned.inventory
    assert [core for cell in pinned.topology.cells for core in cell.cores] == [(0,)]
    assert {"HW_CPU_X86_SSE42", "HW_CPU_X86_SSE3"} <= {*pinned.traits}
    assert "HW_CPU_X86_AVX" not in pinned.traits
