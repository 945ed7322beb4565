"""What the driver does with extra specs of flavors and properties of images, row by row.

What a user asks for is given, or has no effect because it only makes a guest nicer, or is refused: a server that was
promised its own CPUs or an encrypted memory is not built without them.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Mapping

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import DiskBus
from skep.compute.drivers.libvirt.user_networks import MODELS
from skep.domain.images import YES_WORDS
from skep.domain.instances import Instance

NO_WORDS = frozenset({"0", "f", "false", "off", "n", "no"})


class KeyEffect(enum.Enum):
    """What becomes of a key."""

    USED = "used"
    NONE = "of no effect"
    REFUSED = "refused"


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that are treated alike."""

    keys: str
    """A shell pattern."""
    effect: KeyEffect
    fine: frozenset[str] = frozenset()
    """Values, in small letters, that are not refused: they ask for nothing."""
    values: frozenset[str] = frozenset()
    """Of a key that is used: the values that there are; empty: any that the key's reader takes."""


def _used(keys: str, *values: str) -> KeyRow:
    return KeyRow(keys=keys, effect=KeyEffect.USED, values=frozenset(values))


def _none(keys: str) -> KeyRow:
    return KeyRow(keys=keys, effect=KeyEffect.NONE)


def _refused(keys: str, *fine: str) -> KeyRow:
    return KeyRow(keys=keys, effect=KeyEffect.REFUSED, fine=frozenset(fine))


EXTRA_SPECS: tuple[KeyRow, ...] = (
    _used("hw:cpu_sockets"),
    _used("hw:cpu_cores"),
    _used("hw:cpu_threads"),
    _used("hw_rng:allowed"),
    _refused("hw:cpu_policy", "shared"),
    _refused("hw:cpu_dedicated_mask"),
    _refused("hw:cpu_realtime*", *NO_WORDS),
    _refused("hw:cpu_thread_policy", "prefer"),
    _refused("hw:emulator_threads_policy", "share"),
    _refused("hw:numa_*"),
    _refused("hw:mem_page_size", "small", "any"),
    _refused("hw:locked_memory", *NO_WORDS),
    _refused("hw:mem_encryption*", *NO_WORDS),
    _refused("hw:ephemeral_encryption*", *NO_WORDS),
    _refused("hw:tpm_*"),
    _refused("hw:pmem"),
    _refused("hw:maxphysaddr_*"),
    _refused("hw:viommu_model"),
    _refused("hw:watchdog_action", "disabled"),
    _refused("hw:serial_port_count", "0", "1"),
    _refused("hw:pci_numa_affinity_policy", "preferred", "legacy"),
    _refused("pci_passthrough:alias"),
    _refused("accel:device_profile"),
    _refused("os:secure_boot", "disabled", "optional"),
    _refused("quota:cpu_*"),
    _refused("quota:disk_*"),
    _refused("quota:vif_*"),
    _refused("resources*:VGPU", "0"),
    _refused("resources*:PCPU", "0"),
)
"""Every other extra spec has no effect in the driver; schedulers may know it."""

IMAGE_PROPERTIES: tuple[KeyRow, ...] = (
    _used("hw_cpu_sockets"),
    _used("hw_cpu_cores"),
    _used("hw_cpu_threads"),
    _used("hw_machine_type"),
    _used("hw_disk_bus", "virtio", "ide", "sata", "scsi"),
    _used("hw_cdrom_bus", "virtio", "ide", "sata", "scsi"),
    _used("hw_rng_model", "virtio"),
    _used("hw_vif_model", *MODELS),
    _used("hw_architecture", "x86_64", "amd64"),
    _refused("hw_emulation_architecture", "x86_64"),
    _refused("hw_firmware_type", "bios"),
    _refused("hw_firmware_stateless", *NO_WORDS),
    _refused("hw_scsi_model", "virtio-scsi"),
    _refused("hw_cpu_policy", "shared"),
    _refused("hw_cpu_realtime*"),
    _refused("hw_cpu_thread_policy", "prefer"),
    _refused("hw_emulator_threads_policy", "share"),
    _refused("hw_numa_*"),
    _refused("hw_mem_page_size", "small", "any"),
    _refused("hw_locked_memory", *NO_WORDS),
    _refused("hw_mem_encryption*", *NO_WORDS),
    _refused("hw_ephemeral_encryption*", *NO_WORDS),
    _refused("hw_tpm_*"),
    _refused("hw_maxphysaddr_*"),
    _refused("hw_viommu_model"),
    _refused("hw_watchdog_action", "disabled"),
    _refused("hw_serial_port_count", "0", "1"),
    _refused("hw_pci_numa_affinity_policy", "preferred", "legacy"),
    _refused("os_secure_boot", "disabled", "optional"),
    _refused("os_require_quiesce", *NO_WORDS),
    _refused("os_command_line"),
    _refused("kernel_id"),
    _refused("ramdisk_id"),
    _none("hw_*"),
)
"""Every other property has no effect in the driver."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What flavor and image say of the shape of a guest."""

    disk_bus: DiskBus = "virtio"
    cdrom_bus: DiskBus | None = None
    machine: str = ""
    """Empty: that of the host's options."""
    topology: tuple[int, int, int] | None = None
    rng: bool = True
    vif_model: str = "virtio"


def wishes(instance: Instance) -> Wishes:
    """Return what the flavor and the image of a server ask for.

    Raises DriverError that names the key: `InstanceUnacceptable` for an extra spec, `ImageUnacceptable` for a property.
    """
    specs = instance.flavor.extra_specs
    properties = {} if instance.image is None else instance.image.properties
    _check(specs, EXTRA_SPECS, "InstanceUnacceptable")
    _check(properties, IMAGE_PROPERTIES, "ImageUnacceptable")
    bus, cdrom = properties.get("hw_disk_bus", "virtio"), properties.get("hw_cdrom_bus")
    machine = properties.get("hw_machine_type", "")
    if machine and not (machine.isascii() and machine.replace("-", "").replace(".", "").replace("_", "").isalnum()):
        raise DriverError("ImageUnacceptable", "hw_machine_type: that is no name of a machine type")
    return Wishes(
        disk_bus=bus,  # type: ignore[arg-type]  # the table has its values
        cdrom_bus=cdrom,  # type: ignore[arg-type]  # likewise
        machine=machine,
        topology=_topology(instance),
        vif_model=properties.get("hw_vif_model", "virtio").lower(),
        rng=specs.get("hw_rng:allowed", "true").lower() in YES_WORDS,
    )


def effect(rows: tuple[KeyRow, ...], key: str) -> KeyEffect:
    """Return what becomes of a key: the first row that matches says it."""
    row = _row(rows, key)
    return KeyEffect.NONE if row is None else row.effect


def _row(rows: tuple[KeyRow, ...], key: str) -> KeyRow | None:
    return next((row for row in rows if fnmatch.fnmatchcase(key, row.keys)), None)


def _check(given: Mapping[str, str], rows: tuple[KeyRow, ...], error: str) -> None:
    for key, value in given.items():
        row = _row(rows, key)
        if row is None:
            continue
        if row.effect is KeyEffect.REFUSED and value.lower() not in row.fine:
            raise DriverError(error, f"{key}: the driver libvirt cannot do that yet")
        if row.values and value.lower() not in row.values:
            raise DriverError(error, f"{key}: expected one of {', '.join(sorted(row.values))}")


def _topology(instance: Instance) -> tuple[int, int, int] | None:
    """Return sockets, cores and threads; None: nothing is asked. What one side leaves open is worked out."""
    properties = {} if instance.image is None else instance.image.properties
    specs = instance.flavor.extra_specs
    parts = ("sockets", "cores", "threads")
    # Any choice of the image goes before all of the flavor's.
    by_image = any(f"hw_cpu_{part}" in properties for part in parts)
    asked = [properties.get(f"hw_cpu_{part}") if by_image else specs.get(f"hw:cpu_{part}") for part in parts]
    if all(value is None for value in asked):
        return None
    error = "ImageUnacceptable" if by_image else "InstanceUnacceptable"
    names = [f"hw_cpu_{part}" if by_image else f"hw:cpu_{part}" for part in parts]
    for name, value in zip(names, asked, strict=True):
        if value is not None and not (value.isdecimal() and 1 <= int(value) <= instance.flavor.vcpus):
            raise DriverError(error, f"{name}: expected a number from 1 to {instance.flavor.vcpus}")
    sockets, cores, threads = (None if value is None else int(value) for value in asked)
    found = _product(instance.flavor.vcpus, sockets, cores, threads)
    if found is None:
        raise DriverError(error, f"{names[0]}: sockets, cores and threads do not make {instance.flavor.vcpus} CPUs")
    return found


def _product(cpus: int, sockets: int | None, cores: int | None, threads: int | None) -> tuple[int, int, int] | None:
    """Return the whole numbers whose product is the CPUs; what is left open becomes sockets, then cores."""
    thread = threads or 1
    if sockets is None:
        sockets, rest = divmod(cpus, (cores or 1) * thread)
        return None if rest else (sockets, cores or 1, thread)
    if cores is None:
        cores, rest = divmod(cpus, sockets * thread)
        if rest:
            return None
    if threads is None:
        thread, rest = divmod(cpus, sockets * cores)
        if rest:
            return None
    return (sockets, cores, thread) if sockets * cores * thread == cpus else None
