"""What a host with QEMU has, as libvirt and the file system tell it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt
import os_traits

from skep.compute.drivers.base import DriverError, HostFacts
from skep.compute.drivers.libvirt.buses import BUSES
from skep.compute.drivers.libvirt.cpu_traits import cpu_traits
from skep.compute.drivers.libvirt.formats import FORMATS
from skep.compute.drivers.libvirt.host_cells import HostCell, host_cells, topology
from skep.compute.drivers.libvirt.keys import SOUND, VIOMMU, refused_keys
from skep.compute.drivers.libvirt.logical_volumes import LogicalVolumes
from skep.compute.drivers.libvirt.means import ARCHITECTURE, Q35, HostMeans, host_means
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.pci_devices import inventory, pci_devices, pools
from skep.compute.drivers.libvirt.user_networks import MODELS
from skep.domain.providers import Provider
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory

GIB = 1 << 30
ADDRESS_TRAITS = {"emulate": "EMULATED", "passthrough": "PASSTHROUGH"}
UPTIME = Path("/proc/uptime")
PCPU = "PCPU"


def host_facts(
    connection: libvirt.virConnect,
    host: str,
    options: Options,
    directory: Path,
    emulator: str | None = None,
    mediated: tuple[Provider, ...] = (),
    images: int = 0,
) -> HostFacts:
    """Describe the host, which has these mediated devices, and on whose disk images take so many bytes.

    Raises libvirt.libvirtError, OSError, DriverError for a host that cannot run the guests.

    `emulator`: what starts QEMU for guests; None: libvirt finds QEMU.
    """
    architecture, _, cpus = connection.getInfo()[:3]
    if architecture != ARCHITECTURE:
        raise DriverError("HypervisorUnavailable", f"the driver libvirt runs on {ARCHITECTURE}, this is {architecture}")
    # What getInfo says of the memory is that of one NUMA node on some machines.
    memory_kib = connection.getMemoryStats(-1)["total"]
    disk = os.statvfs(directory)
    room = disk.f_blocks * disk.f_frsize if options.disks != "lvm" else LogicalVolumes(options.volume_group).size()
    capabilities = connection.getDomainCapabilities(emulator, ARCHITECTURE, options.machine, options.virt_type)
    express = connection.getDomainCapabilities(emulator, ARCHITECTURE, Q35, options.virt_type)
    of_host = connection.getCapabilities()
    cells = host_cells(of_host, options)
    means = host_means(of_host, capabilities, express, options)
    features = cpu_features(connection, of_host, options)
    devices = (*(pools(options.pci_devices, pci_devices()) if options.pci_devices else ()), *mediated)
    return HostFacts(
        inventory={
            **cpu_inventory(cells, options, cpus),
            **inventory(devices),
            MEMORY_MB: Inventory(total=memory_kib // 1024),
            DISK_GB: Inventory(total=room // GIB, reserved=room // GIB - max(room - images, 0) // GIB),
        },
        hypervisor_type=connection.getType(),
        hypervisor_version=connection.getVersion(),
        hypervisor_hostname=host,
        traits=traits(capabilities, means, features, hyperthreading=any(cell.threads > 1 for cell in cells)),
        refused_keys=refused_keys(means),
        topology=topology(cells, devices),
        cpu_info=cpu_info(capabilities, features, cpus),
        uptime=_uptime(),
        supported_instances=((ARCHITECTURE, options.virt_type, "hvm"),),
    )


@functools.lru_cache(maxsize=4)
def traits(
    capabilities: str, means: HostMeans, features: tuple[str, ...], *, hyperthreading: bool = False
) -> tuple[str, ...]:
    """Return the traits of a host, of the XML of what its guests may be."""
    found = {f"COMPUTE_IMAGE_TYPE_{one.upper()}" for one in FORMATS}
    found |= {"COMPUTE_NODE", "HW_ARCH_X86_64", "COMPUTE_ARCH_X86_64"}
    found |= {"COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH"}
    if hyperthreading:
        found.add("HW_CPU_HYPERTHREADING")
    root = ET.fromstring(capabilities)  # noqa: S314 - of libvirt
    there = {value.text or "" for value in root.findall("devices/disk/enum[@name='bus']/value")}
    found |= {f"COMPUTE_STORAGE_BUS_{bus.upper()}" for bus in BUSES if bus in there}
    found |= {f"COMPUTE_NET_VIF_MODEL_{model.upper()}" for model in MODELS}
    found |= {f"COMPUTE_GRAPHICS_MODEL_{model.upper()}" for model in means.video_models}
    found |= {f"COMPUTE_SOUND_MODEL_{model.upper()}" for model in SOUND}
    found |= {f"COMPUTE_VIOMMU_MODEL_{model.upper()}" for model in VIOMMU}
    found.add("COMPUTE_NET_VIRTIO_PACKED")
    if means.secure_boot:
        found.add("COMPUTE_SECURITY_UEFI_SECURE_BOOT")
    found |= {f"COMPUTE_ADDRESS_SPACE_{ADDRESS_TRAITS[mode]}" for mode in means.address_modes}
    found |= set(cpu_traits(features))
    return tuple(sorted(found & set(os_traits.get_traits())))


def cpu_inventory(cells: tuple[HostCell, ...], options: Options, cpus: int) -> dict[str, Inventory]:
    """Return how many CPUs guests float on, and how many may be pinned; `cpus`: all that the host has.

    A class of which there is none is left out.
    """
    shared = len(options.shared_cpus) if options.shared_cpus or options.dedicated_cpus else cpus
    pinned = sum(len(core) for cell in cells for core in cell.cores)
    return {name: Inventory(total=total) for name, total in ((VCPU, shared), (PCPU, pinned)) if total}


def cpu_features(connection: libvirt.virConnect, capabilities: str, options: Options) -> tuple[str, ...]:
    """Return the features of the CPUs that guests get, those of the model too. Raises libvirt.libvirtError.

    In software they are not those of the host, and QEMU does not say which of them it does: none.
    """
    if options.virt_type != "kvm":
        return ()
    if options.cpu_model in ("", "host-model", "host-passthrough"):
        cpu = ET.fromstring(capabilities).find("host/cpu")  # noqa: S314 - of libvirt
    else:
        cpu = ET.Element("cpu")
        ET.SubElement(cpu, "arch").text = ARCHITECTURE
        ET.SubElement(cpu, "model").text = options.cpu_model
    if cpu is None:
        return ()
    text = ET.tostring(cpu, encoding="unicode")
    whole = connection.baselineCPU([text], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
    expanded = ET.fromstring(whole)  # noqa: S314 - of libvirt
    return tuple(sorted(one.get("name", "") for one in expanded.findall("feature") if one.get("policy") != "disable"))


def cpu_info(capabilities: str, features: tuple[str, ...], cpus: int) -> dict[str, object]:
    """Return what is known of the CPUs that guests get."""
    root = ET.fromstring(capabilities)  # noqa: S314 - of libvirt
    model, vendor = root.find("cpu/mode[@name='host-model']/model"), root.find("cpu/mode[@name='host-model']/vendor")
    return {
        "arch": ARCHITECTURE,
        "vendor": "" if vendor is None else vendor.text or "",
        "model": "" if model is None else model.text or "",
        "topology": {"sockets": cpus, "cores": 1, "threads": 1},
        "features": list(features),
    }


def _uptime() -> str | None:
    try:
        seconds = int(float(UPTIME.read_text().split()[0]))
    except OSError:
        return None
    minutes = seconds // 60
    days, rest = divmod(minutes, 24 * 60)
    load = ", ".join(f"{one:.2f}" for one in os.getloadavg())
    return f"up {days} days, {rest // 60}:{rest % 60:02}, 0 users, load average: {load}"
