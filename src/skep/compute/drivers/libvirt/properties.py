"""What flavor and image wish of a guest, read by the tables of `keys.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.interfaces import Bandwidth
from skep.compute.drivers.libvirt.buses import DiskBus
from skep.compute.drivers.libvirt.hardware import AddressWidth, Hardware, InputBus, RngRate
from skep.compute.drivers.libvirt.means import is_q35
from skep.compute.drivers.libvirt.options import Options
from skep.domain.guest_keys import RefusedKeys, asked_of_guest, disagreement
from skep.domain.images import YES_WORDS
from skep.domain.instances import Instance

PARTS = ("sockets", "cores", "threads")
KIB_PER_MIB = 1024
RNG_PERIOD = 1000
"""Milliseconds, where a rate has no period."""
IOTUNE = tuple(f"{way}_{what}_sec" for what in ("bytes", "iops") for way in ("total", "read", "write"))
"""Bounds of disks: libvirt's words, and behind `quota:disk_` those of extra specs."""

DIRECTIONS = ("inbound", "outbound")
AVERAGE = "average"
BANDWIDTH = (AVERAGE, "peak", "burst")
"""Bounds of interfaces: libvirt's words, and behind `quota:vif_` and a direction those of extra specs."""
MOST_QUEUES = 256
"""Of a tap: the kernel's bound."""

Topology = tuple[int, int, int]


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What flavor and image say of a guest."""

    disk_bus: DiskBus = "virtio"
    cdrom_bus: DiskBus | None = None
    machine: str
    topology: Topology | None = None
    """Sockets, cores, threads."""
    vif_model: str = "virtio"
    packed: bool = False
    """Virtio interfaces have packed rings."""
    queues: int = 1
    """Of each virtio interface."""
    bandwidth: Bandwidth = ()
    """Bounds of each interface."""
    agent: bool = False
    """A line to the QEMU guest agent."""
    administrator: str = ""
    """The user whose password the agent changes; empty where there is no agent."""
    quiesce: bool = False
    """The agent has to freeze file systems when a disk is copied."""
    hardware: Hardware = Hardware()


def check(instance: Instance, refused_keys: RefusedKeys) -> None:
    """Refuse what a host refuses: schedulers do so before, where they know of it.

    Raises DriverError that names the key: `InstanceUnacceptable` for an extra spec, `ImageUnacceptable` for a property.
    """
    asked = asked_of_guest(instance.flavor.extra_specs, _properties(instance))
    for key in refused_keys.of(asked) if asked is not None else ():
        value = instance.flavor.extra_specs.get(key, _properties(instance).get(key))
        raise _unacceptable(key, f"the host cannot do {value}")


def wishes(instance: Instance, options: Options) -> Wishes:
    """Return what flavor and image ask for, once `check` has passed. Raises DriverError, as it does."""
    specs, properties = instance.flavor.extra_specs, _properties(instance)
    differs = disagreement(specs, properties)
    if differs is not None:
        raise _unacceptable(differs[0], f"the flavor says {differs[1]}")
    machine, agent = (
        properties.get("hw_machine_type") or options.machine,
        _is_yes(properties.get("hw_qemu_guest_agent")),
    )
    if not (machine.isascii() and machine.replace("-", "").replace(".", "").replace("_", "").isalnum()):
        raise _unacceptable("hw_machine_type", "that is no name of a machine type")
    return Wishes(
        disk_bus=properties.get("hw_disk_bus", "virtio").lower(),  # type: ignore[arg-type]  # the table has its values
        cdrom_bus=_lower(properties, "hw_cdrom_bus"),  # type: ignore[arg-type]  # likewise
        machine=machine,
        topology=_topology(instance),
        vif_model=properties.get("hw_vif_model", "virtio").lower(),
        packed=bool(_either(specs, properties, "virtio_packed_ring")),
        queues=_queues(instance) if _either(specs, properties, "vif_multiqueue_enabled") else 1,
        bandwidth=tuple(_bandwidth(specs)),
        agent=agent,
        administrator=_administrator(properties) if agent else "",
        quiesce=_is_yes(properties.get("os_require_quiesce")),
        hardware=_hardware(specs, properties, machine),
    )


def _properties(instance: Instance) -> Mapping[str, str]:
    return {} if instance.image is None else instance.image.properties


def _hardware(specs: Mapping[str, str], properties: Mapping[str, str], machine: str) -> Hardware:
    video = _lower(properties, "hw_video_model")
    tablet, keyboard = _inputs(properties)
    watchdog = properties.get("hw_watchdog_action") or specs.get("hw:watchdog_action") or "disabled"
    pmu = _said(specs, properties, "pmu")
    found = Hardware(
        uefi=_is_uefi(properties),
        secure_boot=_is_secure(specs, properties, machine),
        boot_menu=_is_yes(properties.get("hw_boot_menu") or specs.get("hw:boot_menu")),
        hidden=any(map(_is_yes, _hiding(specs, properties))),
        pmu=None if pmu is None else _is_yes(pmu),
        hpet=_is_yes(properties.get("hw_time_hpet")),
        windows=_lower(properties, "os_type") == "windows",
        address_width=_address_width(specs, properties),
        rng=_is_yes(specs.get("hw_rng:allowed", "true")),
        rng_rate=_rng_rate(specs),
        scsi=_lower(properties, "hw_scsi_model") or "virtio-scsi",
        usb=(_said(specs, properties, "usb_model") or "").lower(),
        tablet=tablet,
        keyboard=keyboard,
        sound=(_said(specs, properties, "sound_model") or "").lower(),
        video=video or "",
        video_kib=_video_kib(specs, properties, video),
        watchdog="" if watchdog.lower() == "disabled" else watchdog.lower(),
        iommu=_iommu(specs, properties, machine),
        iotune=tuple(_iotune(specs)),
    )
    if found.needs_usb and found.usb == "none":
        raise _unacceptable(_saying(specs, properties, "usb_model"), "none, and a device of the image needs USB")
    return found


def _administrator(properties: Mapping[str, str]) -> str:
    usual = "Administrator" if _lower(properties, "os_type") == "windows" else "root"
    return properties.get("os_admin_user") or usual


def _is_uefi(properties: Mapping[str, str]) -> bool:
    return _lower(properties, "hw_firmware_type") == "uefi"


def _is_secure(specs: Mapping[str, str], properties: Mapping[str, str], machine: str) -> bool:
    """Tell whether secure boot is required; `optional` is no."""
    key = "os:secure_boot" if "os:secure_boot" in specs else "os_secure_boot"
    if (specs.get(key) or properties.get(key) or "").lower() != "required":
        return False
    if not _is_uefi(properties):
        raise _unacceptable(key, "that needs hw_firmware_type uefi")
    if not is_q35(machine):
        raise _unacceptable(key, f"that needs a machine type of q35, not {machine}")
    return True


def _hiding(specs: Mapping[str, str], properties: Mapping[str, str]) -> Iterator[str | None]:
    yield specs.get("hide_hypervisor_id")
    yield specs.get("hw:hide_hypervisor_id")
    yield properties.get("img_hide_hypervisor_id")


def _address_width(specs: Mapping[str, str], properties: Mapping[str, str]) -> AddressWidth | None:
    mode, bits = _said(specs, properties, "maxphysaddr_mode"), _said(specs, properties, "maxphysaddr_bits")
    if mode is None:
        return None
    key = _saying(specs, properties, "maxphysaddr_bits")
    if bits is None and mode.lower() == "emulate":
        raise _unacceptable(key, "the mode emulate needs it")
    return AddressWidth(mode=mode.lower(), bits=None if bits is None else _number(key, bits, 32, 64))


def _rng_rate(specs: Mapping[str, str]) -> RngRate | None:
    if "hw_rng:rate_bytes" not in specs:
        return None
    period = specs.get("hw_rng:rate_period", str(RNG_PERIOD))
    most = 2**31 - 1
    return RngRate(
        bytes=_number("hw_rng:rate_bytes", specs["hw_rng:rate_bytes"], 1, most),
        period=_number("hw_rng:rate_period", period, 1, most),
    )


def _inputs(properties: Mapping[str, str]) -> tuple[InputBus | None, InputBus | None]:
    """Return the buses of the tablet and of the keyboard."""
    bus = _lower(properties, "hw_input_bus")
    if bus is None:
        return ("usb" if _lower(properties, "hw_pointer_model") == "usbtablet" else None), None
    chosen: InputBus = "usb" if bus == "usb" else "virtio"
    return chosen, chosen


def _video_kib(specs: Mapping[str, str], properties: Mapping[str, str], video: str | None) -> int | None:
    asked = properties.get("hw_video_ram")
    if asked is None:
        return None
    most = _number("hw_video:ram_max_mb", specs.get("hw_video:ram_max_mb", "0"), 0, 2**20)
    found = _number("hw_video_ram", asked, 0, 2**20)
    if found > most:
        raise DriverError(
            "RequestedVRamTooHigh",
            f"hw_video_ram: {found} MiB, and the flavor allows {most} MiB (hw_video:ram_max_mb)",
        )
    return None if video in (None, "none") else found * KIB_PER_MIB or None


def _iommu(specs: Mapping[str, str], properties: Mapping[str, str], machine: str) -> str:
    key = "hw:viommu_model" if "hw:viommu_model" in specs else "hw_viommu_model"
    model = (specs.get(key) or properties.get(key) or "").lower()
    if model and not is_q35(machine):
        raise _unacceptable(key, f"that needs a machine type of q35, not {machine}")
    return "virtio" if model == "auto" else model


def _iotune(specs: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name in IOTUNE:
        key = f"quota:disk_{name}"
        if key not in specs:
            continue
        total = key.replace("_read_", "_total_").replace("_write_", "_total_")
        if key != total and total in specs:
            raise _unacceptable(key, f"not together with {total}")
        if amount := _number(key, specs[key], 0, 2**62):
            yield name, amount


def _queues(instance: Instance) -> int:
    is_virtio = (_lower(_properties(instance), "hw_vif_model") or "virtio") == "virtio"
    return min(instance.flavor.vcpus, MOST_QUEUES) if is_virtio else 1


def _bandwidth(specs: Mapping[str, str]) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Give the bounds of each direction that has an average; without one libvirt knows no other."""
    for direction in DIRECTIONS:
        said = {name: f"quota:vif_{direction}_{name}" for name in BANDWIDTH}
        bounds = {name: _number(key, specs[key], 1, 2**31) for name, key in said.items() if key in specs}
        if AVERAGE in bounds:
            yield direction, tuple(bounds.items())


def _said(specs: Mapping[str, str], properties: Mapping[str, str], name: str) -> str | None:
    """Return what the flavor or the image says; where both do, they agree."""
    return specs.get(f"hw:{name}") or properties.get(f"hw_{name}") or None


def _saying(specs: Mapping[str, str], properties: Mapping[str, str], name: str) -> str:
    """Return the key by which something is said, or would be."""
    return f"hw_{name}" if f"hw:{name}" not in specs and f"hw_{name}" in properties else f"hw:{name}"


def _either(specs: Mapping[str, str], properties: Mapping[str, str], name: str) -> bool:
    return _is_yes(_said(specs, properties, name))


def _is_yes(value: str | None) -> bool:
    return value is not None and value.lower() in YES_WORDS


def _lower(properties: Mapping[str, str], key: str) -> str | None:
    value = properties.get(key)
    return value.lower() if value else None


def _number(key: str, value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 20 and least <= int(value) <= most):
        raise _unacceptable(key, f"expected a number from {least} to {most}")
    return int(value)


def _unacceptable(key: str, why: str) -> DriverError:
    is_of_flavor = ":" in key or key == "hide_hypervisor_id"
    return DriverError("InstanceUnacceptable" if is_of_flavor else "ImageUnacceptable", f"{key}: {why}")


def _topology(instance: Instance) -> Topology | None:
    """Return sockets, cores and threads; None: nothing is asked. What is left open is worked out."""
    specs, properties, cpus = instance.flavor.extra_specs, _properties(instance), instance.flavor.vcpus
    bounds = ((part, _bound(specs, properties, part)) for part in PARTS)
    most = {part: bound for part, bound in bounds if bound is not None}
    # Any choice of the image goes before all of the flavor's.
    by_image = any(f"hw_cpu_{part}" in properties for part in PARTS)
    prefix, said = ("hw_cpu_", properties) if by_image else ("hw:cpu_", specs)
    chosen = {part: said[prefix + part] for part in PARTS if prefix + part in said}
    asked = {part: _number(prefix + part, value, 1, cpus) for part, value in chosen.items()}
    for part, number in asked.items():
        if number > most.get(part, cpus):
            raise _unacceptable(prefix + part, f"{number}, and at most {most[part]} are allowed")
    if not asked and not most:
        return None
    fitting = [one for one in _products(cpus) if _fits(dict(zip(PARTS, one, strict=True)), asked, most)]
    if not fitting:
        key = next((prefix + part for part in asked), _bounding(properties))
        raise _unacceptable(key, f"sockets, cores and threads do not make {cpus} CPUs")
    return max(fitting)


def _fits(found: Mapping[str, int], asked: Mapping[str, int], most: Mapping[str, int]) -> bool:
    """Tell whether a topology has the numbers that are asked for, and no greater ones than are allowed."""
    return all(asked.get(part, number) == number <= most.get(part, number) for part, number in found.items())


def _bound(specs: Mapping[str, str], properties: Mapping[str, str], part: str) -> int | None:
    of_flavor, of_image = f"hw:cpu_max_{part}", f"hw_cpu_max_{part}"
    most = _number(of_flavor, specs[of_flavor], 1, 2**31) if of_flavor in specs else None
    if of_image not in properties:
        return most
    found = _number(of_image, properties[of_image], 1, 2**31)
    if most is not None and found > most:
        raise _unacceptable(of_image, f"{found}, and the flavor allows {most}")
    return found


def _bounding(properties: Mapping[str, str]) -> str:
    return next((f"hw_cpu_max_{part}" for part in PARTS if f"hw_cpu_max_{part}" in properties), "hw:cpu_max_sockets")


def _products(cpus: int) -> Iterator[Topology]:
    """Give all whole numbers whose product is the CPUs. The largest, in their order, has the most sockets."""
    for sockets in range(1, cpus + 1):
        each, rest = divmod(cpus, sockets)
        if not rest:
            yield from ((sockets, cores, each // cores) for cores in range(1, each + 1) if not each % cores)
