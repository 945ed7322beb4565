"""For each key that changes the XML of a guest: what is asked, and where in the XML it is found.

The samples are checked twice: as they are made, and by a real libvirt, which knows whether they make sense.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from skep.compute.drivers.libvirt.domain import DiskFile, GuestLabel, GuestShape
from skep.compute.drivers.libvirt.guest_cells import guest_place
from skep.compute.drivers.libvirt.host_cells import HostCell
from skep.compute.drivers.libvirt.mediated_devices import held_mediated
from skep.compute.drivers.libvirt.options import Options, VirtType
from skep.compute.drivers.libvirt.pci_devices import held_devices
from skep.compute.drivers.libvirt.properties import wishes
from skep.domain.ids import InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.providers import Allocation, CellShare, ProviderShare
from tests.support.agents import instance

UUID = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")


class Sample(NamedTuple):
    """A flavor and an image, and what they become."""

    specs: dict[str, str]
    properties: dict[str, str]
    found: tuple[str, ...]
    """Paths of elements that the XML has."""
    absent: tuple[str, ...] = ()
    """Paths of elements that it has not."""
    virt_type: VirtType = "qemu"
    cpu_model: str = ""
    allocation: Allocation | None = None
    """What of `CELLS` the scheduler gave."""
    needs: str = ""
    """What a host may lack: `uefi`."""


CELLS = (
    HostCell(number=0, shared=(0,), cores=((1,),), pages=((4, 1 << 18), (2048, 64)), threads=2),
    HostCell(number=1, shared=(2,), cores=((3,),), pages=((4, 1 << 18), (2048, 64)), threads=2, socket=1),
)
"""The inside of a host."""


def cell(number: int, shared: int = 0, cpus: tuple[int, ...] = (), **memory: Any) -> CellShare:
    """Return what a guest has of a cell."""
    return CellShare(cell=number, shared=shared, cpus=cpus, **memory)


Q35 = {"hw_machine_type": "q35"}
UEFI = {"hw_firmware_type": "uefi", **Q35}

SAMPLES: dict[str, Sample] = {
    "nothing": Sample(
        {},
        {},
        ("devices/rng/backend", "devices/controller[@type='usb'][@model='none']", "clock[@offset='utc']"),
        ("devices/rng/rate", "devices/watchdog", "devices/sound", "features/pmu", "os/bootmenu", "devices/iommu"),
    ),
    "sockets": Sample({"hw:cpu_sockets": "1"}, {}, ("cpu/topology[@sockets='1'][@cores='4'][@threads='1']",)),
    "cores": Sample({}, {"hw_cpu_cores": "2"}, ("cpu/topology[@sockets='2'][@cores='2']",)),
    "threads": Sample({"hw:cpu_threads": "2"}, {}, ("cpu/topology[@sockets='2'][@threads='2']",)),
    "most sockets": Sample({"hw:cpu_max_sockets": "2"}, {}, ("cpu/topology[@sockets='2'][@cores='2']",)),
    "most cores of the image": Sample(
        {"hw:cpu_max_cores": "4"},
        {"hw_cpu_max_cores": "2", "hw_cpu_max_sockets": "2"},
        ("cpu/topology[@sockets='2'][@cores='2']",),
    ),
    "machine": Sample({}, Q35, ("os/type[@machine='q35']",)),
    "uefi": Sample(
        {}, UEFI, ("os[@firmware='efi']", "os/firmware/feature[@enabled='no'][@name='secure-boot']"), needs="uefi"
    ),
    "secure boot": Sample(
        {"os:secure_boot": "required"},
        UEFI,
        ("os/firmware/feature[@enabled='yes']", "os/loader[@secure='yes']", "features/smm[@state='on']"),
        needs="uefi",
    ),
    "secure boot of the image": Sample(
        {}, {**UEFI, "os_secure_boot": "required"}, ("os/loader[@secure='yes']",), needs="uefi"
    ),
    "boot menu": Sample({"hw:boot_menu": "true"}, {}, ("os/bootmenu[@enable='yes']",)),
    "no boot menu by the image": Sample({"hw:boot_menu": "true"}, {"hw_boot_menu": "no"}, (), ("os/bootmenu",)),
    "hidden": Sample({"hw:hide_hypervisor_id": "yes"}, {}, ("features/kvm/hidden[@state='on']",), virt_type="kvm"),
    "hidden by the image": Sample(
        {"hide_hypervisor_id": "no"}, {"img_hide_hypervisor_id": "true"}, ("features/kvm/hidden",), virt_type="kvm"
    ),
    "hidden, in software": Sample({"hide_hypervisor_id": "yes"}, {}, (), ("features/kvm",)),
    "counters": Sample({"hw:pmu": "true"}, {}, ("features/pmu[@state='on']",)),
    "no counters": Sample({}, {"hw_pmu": "false"}, ("features/pmu[@state='off']",)),
    "watchdog": Sample({"hw:watchdog_action": "reset"}, {}, ("devices/watchdog[@model='i6300esb'][@action='reset']",)),
    "watchdog of the image": Sample(
        {"hw:watchdog_action": "reset"}, {"hw_watchdog_action": "pause"}, ("devices/watchdog[@action='pause']",)
    ),
    "no watchdog by the image": Sample(
        {"hw:watchdog_action": "reset"}, {"hw_watchdog_action": "disabled"}, (), ("devices/watchdog",)
    ),
    "iommu": Sample(
        {"hw:viommu_model": "intel"},
        Q35,
        ("devices/iommu[@model='intel']/driver[@intremap='on'][@aw_bits='48']", "features/ioapic[@driver='qemu']"),
    ),
    "any iommu": Sample({}, {**Q35, "hw_viommu_model": "auto"}, ("devices/iommu[@model='virtio']",)),
    "iommu of the flavor": Sample(
        {"hw:viommu_model": "virtio"}, {**Q35, "hw_viommu_model": "intel"}, ("devices/iommu[@model='virtio']",)
    ),
    **{
        f"sound {model}": Sample({}, {"hw_sound_model": model}, (f"devices/sound[@model='{model}']",))
        for model in ("sb16", "es1370", "ac97", "ich6", "ich9")
    },
    "sound by USB": Sample(
        {"hw:sound_model": "usb"},
        {},
        ("devices/sound[@model='usb']", "devices/controller[@type='usb'][@model='qemu-xhci']"),
    ),
    "usb": Sample({}, {"hw_usb_model": "nec-xhci"}, ("devices/controller[@type='usb'][@model='nec-xhci']",)),
    "usb of the flavor": Sample({"hw:usb_model": "qemu-xhci"}, {}, ("devices/controller[@model='qemu-xhci']",)),
    "input by USB": Sample(
        {},
        {"hw_input_bus": "usb"},
        (
            "devices/input[@type='tablet'][@bus='usb']",
            "devices/input[@type='keyboard'][@bus='usb']",
            "devices/controller[@type='usb'][@model='qemu-xhci']",
        ),
    ),
    "input by virtio": Sample({}, {"hw_input_bus": "virtio"}, ("devices/input[@type='tablet'][@bus='virtio']",)),
    "pointer": Sample(
        {}, {"hw_pointer_model": "usbtablet"}, ("devices/input[@bus='usb']",), ("devices/input[@type='keyboard']",)
    ),
    **{
        f"screen {model}": Sample({}, {"hw_video_model": model}, (f"devices/video/model[@type='{model}']",))
        for model in ("vga", "cirrus", "vmvga", "qxl", "virtio", "bochs", "none")
    },
    "guest agent": Sample(
        {},
        {"hw_qemu_guest_agent": "yes"},
        ("devices/channel[@type='unix']/target[@type='virtio'][@name='org.qemu.guest_agent.0']",),
    ),
    "no guest agent": Sample({}, {"hw_qemu_guest_agent": "no"}, (), ("devices/channel",)),
    "memory of the screen": Sample(
        {"hw_video:ram_max_mb": "32"},
        {"hw_video_model": "vga", "hw_video_ram": "16"},
        ("devices/video/model[@type='vga'][@vram='16384']",),
    ),
    **{
        f"scsi {model}": Sample(
            {},
            {"hw_disk_bus": "scsi", "hw_scsi_model": model},
            (f"devices/controller[@type='scsi'][@model='{model}']", "devices/disk/target[@bus='scsi']"),
        )
        for model in ("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078", "vmpvscsi")
    },
    "cdrom": Sample({}, {"hw_cdrom_bus": "sata", "hw_disk_bus": "ide"}, ("devices/disk/target[@bus='ide']",)),
    "no entropy": Sample({"hw_rng:allowed": "false"}, {}, (), ("devices/rng",)),
    "entropy": Sample(
        {"hw_rng:rate_bytes": "1024", "hw_rng:rate_period": "2000"},
        {"hw_rng_model": "virtio"},
        ("devices/rng/rate[@bytes='1024'][@period='2000']",),
    ),
    "entropy in a second": Sample({"hw_rng:rate_bytes": "64"}, {}, ("devices/rng/rate[@period='1000']",)),
    "timer": Sample({}, {"hw_time_hpet": "true"}, ("clock/timer[@name='hpet'][@present='yes']",), virt_type="kvm"),
    "windows": Sample(
        {},
        {"os_type": "windows"},
        (
            "clock[@offset='localtime']/timer[@name='hypervclock']",
            "features/hyperv/relaxed[@state='on']",
            "features/hyperv/spinlocks[@retries='8191']",
        ),
        ("features/hyperv/vendor_id",),
        virt_type="kvm",
    ),
    "windows, hidden": Sample(
        {"hw:hide_hypervisor_id": "yes"},
        {"os_type": "windows"},
        ("features/hyperv/vendor_id[@state='on']", "features/kvm/hidden"),
        virt_type="kvm",
    ),
    "windows in software": Sample(
        {}, {"os_type": "windows"}, ("clock[@offset='localtime']",), ("clock/timer", "features/hyperv")
    ),
    "address width": Sample(
        {"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"},
        {},
        ("cpu/maxphysaddr[@mode='emulate'][@bits='42']",),
        virt_type="kvm",
    ),
    "address width of the image": Sample(
        {"hw:maxphysaddr_mode": "emulate"},
        {"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": "40"},
        ("cpu/maxphysaddr[@mode='emulate'][@bits='40']",),
        virt_type="kvm",
    ),
    "address width of the host": Sample(
        {},
        {"hw_maxphysaddr_mode": "passthrough"},
        ("cpu/maxphysaddr[@mode='passthrough']",),
        virt_type="kvm",
        cpu_model="host-passthrough",
    ),
    "cells": Sample(
        {"hw:numa_nodes": "2"},
        {},
        (
            "cpu/numa/cell[@id='0'][@cpus='0,1'][@memory='131072'][@unit='KiB']",
            "cpu/numa/cell[@id='1'][@cpus='2,3']",
            "numatune/memory[@mode='strict'][@nodeset='0,1']",
            "numatune/memnode[@cellid='0'][@nodeset='1']",
            "numatune/memnode[@cellid='1'][@nodeset='0']",
            "cputune/vcpupin[@vcpu='0'][@cpuset='2']",
            "cputune/vcpupin[@vcpu='3'][@cpuset='0']",
            "cputune/emulatorpin[@cpuset='0,2']",
        ),
        ("memoryBacking", "vcpu[@cpuset]"),
        virt_type="kvm",
        allocation=Allocation(cells=(cell(1, 2, memory_mb=128), cell(0, 2, memory_mb=128))),
    ),
    "cells of the image, in software": Sample(
        {},
        {
            "hw_numa_nodes": "1",
            "hw_numa_cpus.0": "0-3",
            "hw_numa_mem.0": "256",
        },
        ("cpu/numa/cell[@cpus='0,1,2,3'][@memory='262144']", "vcpu[@cpuset='0']"),
        ("cputune",),
        allocation=Allocation(cells=(cell(0, 4, memory_mb=256),)),
    ),
    "huge pages": Sample(
        {"hw:mem_page_size": "large"},
        {"hw_mem_page_size": "2MB"},
        ("memoryBacking/hugepages/page[@size='2048'][@unit='KiB'][@nodeset='0']",),
        ("vcpu[@cpuset='0,2']",),
        allocation=Allocation(cells=(cell(0, 4, pages={2048: 128}),)),
        needs="huge pages",
    ),
    "ordinary pages": Sample(
        {"hw:mem_page_size": "small"},
        {},
        ("cpu/numa/cell[@memory='262144']",),
        ("memoryBacking",),
        allocation=Allocation(cells=(cell(0, 4, pages={4: 1 << 16}),)),
    ),
    "pinned": Sample(
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0,3", "hw:emulator_threads_policy": "isolate"},
        {"hw_cpu_thread_policy": "prefer"},
        (
            "cputune/vcpupin[@vcpu='0'][@cpuset='1']",
            "cputune/vcpupin[@vcpu='1'][@cpuset='0']",
            "cputune/vcpupin[@vcpu='3'][@cpuset='5']",
            "cputune/emulatorpin[@cpuset='7']",
        ),
        virt_type="kvm",
        allocation=Allocation(cells=(cell(0, 2, (1, 5, 7), memory_mb=256),)),
        needs="more CPUs",
    ),
    "a device": Sample(
        {"pci_passthrough:alias": "nic:1"},
        {},
        ("devices/hostdev[@type='pci']/source/address[@bus='0x81']",),
        virt_type="kvm",
        allocation=Allocation(
            providers=(ProviderShare(provider="nics", resources={"CUSTOM_NIC": 1}, devices=("0000:81:02.1",)),)
        ),
    ),
    "mediated devices": Sample(
        {"resources:VGPU": "2"},
        {},
        ("devices/hostdev[@type='mdev'][@model='vfio-pci']/source/address[@uuid]",),
        virt_type="kvm",
        allocation=Allocation(
            providers=(ProviderShare(provider="mdev-0000:06:00.0-nvidia-222-00000000", resources={"VGPU": 2}),)
        ),
    ),
    "pinned by the image": Sample(
        {"hw:cpu_thread_policy": "require"},
        {"hw_cpu_policy": "dedicated"},
        ("cputune/vcpupin[@vcpu='2'][@cpuset='6']", "cputune/emulatorpin[@cpuset='4,5,6,7']"),
        virt_type="kvm",
        allocation=Allocation(cells=(cell(1, 0, (4, 5, 6, 7), memory_mb=256),)),
        needs="more CPUs",
    ),
    "bounds of disks": Sample(
        {"quota:disk_read_bytes_sec": "1000000", "quota:disk_write_iops_sec": "200", "quota:disk_read_iops_sec": "0"},
        {},
        ("devices/disk/iotune[read_bytes_sec='1000000'][write_iops_sec='200']",),
        ("devices/disk/iotune/read_iops_sec",),
    ),
    "bounds of disks together": Sample(
        {"quota:disk_total_bytes_sec": "1000000", "quota:disk_total_iops_sec": "200"},
        {},
        ("devices/disk/iotune[total_bytes_sec='1000000'][total_iops_sec='200']",),
    ),
}


def server(specs: dict[str, str], properties: dict[str, str], vcpus: int = 4) -> Instance:
    """Return a server of a flavor with these extra specs, and of an image with these properties."""
    plain = instance()
    flavor = msgspec.structs.replace(plain.flavor, vcpus=vcpus, memory_mb=256, extra_specs=specs)
    return msgspec.structs.replace(plain, flavor=flavor, image=Image(id="image", properties=properties))


def shape_of(sample: Sample, uuid: InstanceUuid = UUID) -> GuestShape:
    """Return the guest of a sample, with one disk."""
    options = Options(virt_type=sample.virt_type, cpu_model=sample.cpu_model)
    one = server(sample.specs, sample.properties)
    found = wishes(one, options)
    return GuestShape(
        label=GuestLabel(instance=uuid, attempt=1, name="sample", resources={}),
        vcpus=4,
        memory_mb=256,
        virt_type=sample.virt_type,
        machine=found.machine,
        cpu_model=sample.cpu_model,
        topology=found.topology,
        disks=(DiskFile(path="/disk", format="qcow2", bus=found.disk_bus),),
        console_file="/console.log",
        hardware=found.hardware,
        host_devices=held_devices(sample.allocation),
        mediated=tuple(str(uuid4()) for _ in range(sum(held_mediated(sample.allocation).values()))),
        agent=found.agent,
        place=guest_place(one, sample.allocation, CELLS, sample.virt_type, confined=False),
    )
