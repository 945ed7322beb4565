"""What the driver does with each extra spec of flavors and each property of images, row by row.

What a user asks for is given, or has no effect because it only makes a guest nicer, or is refused: a server that was
promised its own CPUs or an encrypted memory is not built without them. A host tells schedulers what it refuses, so that
such a server is refused before anything is allocated.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Callable, Iterable

import msgspec

from skep.compute.drivers.libvirt.means import HostMeans
from skep.compute.drivers.libvirt.user_networks import MODELS
from skep.domain.guest_keys import KeyRule, RefusedKeys
from skep.domain.images import NO_WORDS


class KeyEffect(enum.Enum):
    """What becomes of a key."""

    USED = "used"
    NONE = "of no effect"
    REFUSED = "refused"


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that are treated alike."""

    keys: tuple[str, ...]
    """Shell patterns."""
    effect: KeyEffect
    about: str
    """What it becomes in the guest's XML, or why it does not: for people."""
    values: tuple[str, ...] = ()
    """In small letters. Of a key that is used: the values that there are, empty: any that its reader takes. Of a key
    that is refused: those that ask for nothing, and so are not."""
    of_host: Callable[[HostMeans], Iterable[str]] | None = None
    """Further such values, that a host may have."""
    may_have: str = ""
    """What `of_host` gives, for people."""

    def taken(self, means: HostMeans) -> frozenset[str]:
        """Return the values that are not refused on a host."""
        return frozenset((*self.values, *(self.of_host(means) if self.of_host is not None else ())))

    @property
    def is_open(self) -> bool:
        """Whether no value is refused by this row alone."""
        used = self.effect is KeyEffect.USED and not self.values and self.of_host is None
        return used or self.effect is KeyEffect.NONE


def _used(keys: str, about: str, *values: str) -> KeyRow:
    return KeyRow(keys=tuple(keys.split()), effect=KeyEffect.USED, about=about, values=values)


def _none(keys: str, about: str) -> KeyRow:
    return KeyRow(keys=tuple(keys.split()), effect=KeyEffect.NONE, about=about)


def _refused(keys: str, about: str, *values: str) -> KeyRow:
    return KeyRow(keys=tuple(keys.split()), effect=KeyEffect.REFUSED, about=about, values=values)


def _of_host(keys: str, about: str, may_have: str, of_host: Callable[[HostMeans], Iterable[str]], *also: str) -> KeyRow:
    return KeyRow(
        keys=tuple(keys.split()),
        effect=KeyEffect.USED,
        about=about,
        values=also,
        of_host=of_host,
        may_have=may_have,
    )


_BUSES = ("virtio", "ide", "sata", "scsi")
SOUND = ("sb16", "es1370", "ac97", "ich6", "ich9", "usb")
_USB = ("none", "nec-xhci", "qemu-xhci")
VIOMMU = ("intel", "virtio", "auto")
_WATCHDOG = ("none", "pause", "poweroff", "reset", "disabled")
_SCSI = ("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078", "vmpvscsi")
_VIDEO = frozenset({"vga", "cirrus", "vmvga", "qxl", "virtio", "bochs", "none"})
"""What Nova calls models of the screen; a host has some of them."""

_TOPOLOGY = "`cpu/topology`. Any of the image's goes before all of the flavor's; what is open is worked out"
_BOUNDS = "bounds of the topology; the image's may not be above the flavor's"
ANY = "*"
"""A value that stands for all."""
_PINS = "`cputune/vcpupin`, by what the scheduler gave"
_PINNED = "where `cpu_dedicated_set` is set"
_CELLS = "`cpu/numa/cell`, `numatune/memnode`: cells of the host, by what the scheduler gave"
_PAGES = "`memoryBacking/hugepages`; ordinary pages are not named"
_WHERE_CELLS = "any, where libvirt knows of NUMA cells"
_REAL_TIME = "no CPU of a guest is scheduled in real time"
_LOCKED = "memory is not locked"
_SECRET = "neither memory nor disks are encrypted"  # noqa: S105 - a sentence
_TPM = "there is no TPM"
_LINE = "a guest has one serial line"
_CPU_GROUPS = "no control group confines guests"
_QUEUES = "as many queues of virtio interfaces as CPUs"
_PLUGGED = "any, with `networks` `neutron`"
_BANDWIDTH = "`bandwidth` of each interface, where an average is named; KiB in a second, `burst` KiB"
_ON_HOST = "any, with `networks` `bridge` or `neutron`"
_SPICE = "needs SPICE, which there is not"
_WIDTH = "`cpu/maxphysaddr`, with `virt_type` `kvm`"
_MODES = "`emulate`; `passthrough` with the `cpu_model` `host-passthrough`"
_MEDIATED = "`hostdev` of type `mdev`, by what the scheduler gave; of hosts with `mediated_devices`"
_SCHEDULER = "schedulers read it"
_UNREAD = "not read"
_NOVA_TOO = "of no effect in Nova's driver, either"
_FOREIGN = "for other hypervisors"


def _policies(means: HostMeans) -> Iterable[str]:
    return ("dedicated", "mixed") if means.dedicated else ()


def _thread_policies(means: HostMeans) -> Iterable[str]:
    return ("isolate", "require") if means.dedicated else ()


def _emulators(means: HostMeans) -> Iterable[str]:
    return ("isolate",) if means.dedicated else ()


def _any_pinned(means: HostMeans) -> Iterable[str]:
    return (ANY,) if means.dedicated else ()


def _any_cells(means: HostMeans) -> Iterable[str]:
    return (ANY,) if means.cells else ()


def _any_queues(means: HostMeans) -> Iterable[str]:
    return (ANY,) if means.networks == "neutron" else ()


def _any_bandwidth(means: HostMeans) -> Iterable[str]:
    return () if means.networks == "user" else (ANY,)


EXTRA_SPECS: tuple[KeyRow, ...] = (
    _used("hw:cpu_sockets hw:cpu_cores hw:cpu_threads", _TOPOLOGY),
    _used("hw:cpu_max_sockets hw:cpu_max_cores hw:cpu_max_threads", _BOUNDS),
    _of_host("hw:cpu_policy", _PINS, f"`dedicated`, `mixed`, {_PINNED}", _policies, "shared"),
    _of_host("hw:cpu_thread_policy", _PINS, f"`isolate`, `require`, {_PINNED}", _thread_policies, "prefer"),
    _of_host("hw:cpu_dedicated_mask", _PINS, f"any, {_PINNED}", _any_pinned),
    _refused("hw:cpu_realtime", _REAL_TIME, *NO_WORDS),
    _none("hw:cpu_realtime_mask", "needs `hw:cpu_realtime`, which is refused"),
    _of_host("hw:emulator_threads_policy", "`cputune/emulatorpin`", f"`isolate`, {_PINNED}", _emulators, "share"),
    _of_host("hw:numa_nodes hw:numa_cpus.* hw:numa_mem.*", _CELLS, _WHERE_CELLS, _any_cells),
    _of_host("hw:mem_page_size", _PAGES, _WHERE_CELLS, _any_cells),
    _refused("hw:locked_memory", _LOCKED, *NO_WORDS),
    _refused("hw:mem_encryption hw:ephemeral_encryption", _SECRET, *NO_WORDS),
    _refused("hw:mem_encryption_model hw:ephemeral_encryption_format", _SECRET),
    _refused("hw:tpm_model hw:tpm_version hw:tpm_secret_security", _TPM),
    _refused("hw:pmem", "there is no persistent memory"),
    _of_host(
        "pci_passthrough:alias",
        "`hostdev`, by what the scheduler gave",
        "any, where `pci_devices` is set",
        lambda means: (ANY,) if means.devices else (),
    ),
    _refused("accel:device_profile", "no accelerator is given"),
    _none("hw:pci_numa_affinity_policy", _SCHEDULER),
    _used("hw:boot_menu", "`os/bootmenu`; the image's goes before it"),
    _used("hw:hide_hypervisor_id hide_hypervisor_id", "`features/kvm/hidden`, with `virt_type` `kvm`"),
    _of_host("hw:vif_multiqueue_enabled", _QUEUES, _PLUGGED, _any_queues, *NO_WORDS),
    _used("hw:virtio_packed_ring", "packed rings of virtio interfaces"),
    _used("hw:pmu", "`features/pmu`"),
    _refused("hw:serial_port_count", _LINE, "0", "1"),
    _used("hw:watchdog_action", "`watchdog`, model i6300esb; the image's goes before it", *_WATCHDOG),
    _used("hw:viommu_model", "`iommu`; needs a machine type of q35. `auto` is `virtio`", *VIOMMU),
    _used("hw:sound_model", "`sound`: heard by no one, but there", *SOUND),
    _used("hw:usb_model", "`controller` of USB", *_USB),
    _refused("hw:redirected_usb_ports", _SPICE, "0"),
    _of_host("hw:maxphysaddr_mode", _WIDTH, _MODES, lambda means: means.address_modes),
    _used("hw:maxphysaddr_bits", _WIDTH),
    _of_host(
        "os:secure_boot",
        "`os/firmware/feature`; needs UEFI and a machine type of q35",
        "`required`, where such a firmware is installed",
        lambda means: {"required"} if means.secure_boot else (),
        "disabled",
    ),
    _used("hw_rng:allowed", "`rng`: there is one unless this says no"),
    _used("hw_rng:rate_bytes hw_rng:rate_period", "`rng/rate`; the period in ms, 1000 by default"),
    _used("hw_video:ram_max_mb", "the most that `hw_video_ram` may ask for, in MiB; 0 by default"),
    _refused("quota:cpu_shares quota:cpu_period quota:cpu_quota", _CPU_GROUPS),
    _used("quota:disk_read_bytes_sec quota:disk_write_bytes_sec quota:disk_total_bytes_sec", "`iotune` of each disk"),
    _used("quota:disk_read_iops_sec quota:disk_write_iops_sec quota:disk_total_iops_sec", "`iotune` of each disk"),
    _of_host("quota:vif_inbound_* quota:vif_outbound_*", _BANDWIDTH, _ON_HOST, _any_bandwidth),
    _none("quota:cpu_* quota:memory_* quota:disk_io_* quota:vif_* vmware:*", _FOREIGN),
    _used("resources*:VGPU", _MEDIATED),
    _none("resources* trait* group_policy capabilities:* aggregate_instance_extra_specs:* spread:*", _SCHEDULER),
)
"""The first row that fits a key counts. Every other extra spec has no effect in the driver; schedulers may know it."""

IMAGE_PROPERTIES: tuple[KeyRow, ...] = (
    _used("hw_cpu_sockets hw_cpu_cores hw_cpu_threads", _TOPOLOGY),
    _used("hw_cpu_max_sockets hw_cpu_max_cores hw_cpu_max_threads", _BOUNDS),
    _of_host(
        "hw_machine_type",
        "`os/type@machine`, in place of the option `machine`",
        "`pc`, `q35` and their versions, as QEMU has them",
        lambda means: means.machines,
    ),
    _of_host(
        "hw_firmware_type",
        "`os@firmware`. Its variables are new after a rebuild, resize or migration",
        "`uefi`, where a firmware is installed (Debian's package `ovmf`)",
        lambda means: {"uefi"} if means.uefi else (),
        "bios",
    ),
    _refused("hw_firmware_stateless", "UEFI has variables", *NO_WORDS),
    _of_host(
        "os_secure_boot",
        "`os/firmware/feature`; needs UEFI and a machine type of q35",
        "`required`, where such a firmware is installed",
        lambda means: {"required"} if means.secure_boot else (),
        "disabled",
        "optional",
    ),
    _used("hw_disk_bus", "`disk/target@bus`", *_BUSES),
    _used("hw_cdrom_bus", "`disk/target@bus` of the config drive", *_BUSES),
    _none("hw_floppy_bus", "there is no floppy disk"),
    _used("hw_scsi_model", "`controller` of SCSI disks", *_SCSI),
    _used("hw_vif_model", "the model of interfaces", *MODELS),
    _of_host(
        "hw_video_model",
        "`video`",
        "those of " + ", ".join(sorted(_VIDEO)) + " that QEMU has",
        lambda means: means.video_models & _VIDEO,
    ),
    _used(
        "hw_video_ram", "`video/model@vram`, in MiB; needs `hw_video_model`, and `hw_video:ram_max_mb` of the flavor"
    ),
    _used("hw_input_bus", "a tablet and a keyboard on that bus", "usb", "virtio"),
    _used("hw_pointer_model", "a tablet", "usbtablet"),
    _used("hw_rng_model", "`rng`", "virtio"),
    _used("hw_time_hpet", "a timer, with `virt_type` `kvm`; QEMU's own emulation always has it"),
    _used("hw_boot_menu", "`os/bootmenu`"),
    _used("img_hide_hypervisor_id", "`features/kvm/hidden`, with `virt_type` `kvm`"),
    _used("hw_virtio_packed_ring", "packed rings of virtio interfaces"),
    _used("hw_pmu", "`features/pmu`"),
    _used("hw_watchdog_action", "`watchdog`, model i6300esb", *_WATCHDOG),
    _used("hw_viommu_model", "`iommu`; needs a machine type of q35; the flavor's goes before it", *VIOMMU),
    _used("hw_sound_model", "`sound`: heard by no one, but there", *SOUND),
    _used("hw_usb_model", "`controller` of USB", *_USB),
    _of_host("hw_maxphysaddr_mode", _WIDTH, _MODES, lambda means: means.address_modes),
    _used("hw_maxphysaddr_bits", _WIDTH),
    _used("os_type", "`windows`: the clock has local time, and with `virt_type` `kvm` Hyper-V is offered"),
    _used("hw_architecture", "schedulers read it, too", "x86_64", "amd64"),
    _refused("hw_emulation_architecture", "guests have the architecture of their host", "x86_64"),
    _of_host("hw_cpu_policy", _PINS, f"`dedicated`, `mixed`, {_PINNED}", _policies, "shared"),
    _of_host("hw_cpu_thread_policy", _PINS, f"`isolate`, `require`, {_PINNED}", _thread_policies, "prefer"),
    _none("hw_cpu_realtime_mask", "needs `hw:cpu_realtime`, which is refused"),
    _of_host("hw_numa_nodes hw_numa_cpus* hw_numa_mem*", _CELLS, _WHERE_CELLS, _any_cells),
    _of_host("hw_mem_page_size", _PAGES, _WHERE_CELLS, _any_cells),
    _refused("hw_locked_memory", _LOCKED, *NO_WORDS),
    _refused("hw_mem_encryption hw_ephemeral_encryption", _SECRET, *NO_WORDS),
    _refused(
        "hw_mem_encryption_model hw_ephemeral_encryption_format hw_ephemeral_encryption_secret_uuid",
        _SECRET,
    ),
    _refused("hw_tpm_model hw_tpm_version", _TPM),
    _none("hw_pci_numa_affinity_policy", _SCHEDULER),
    _of_host("hw_vif_multiqueue_enabled", _QUEUES, _PLUGGED, _any_queues, *NO_WORDS),
    _refused("hw_serial_port_count", _LINE, "0", "1"),
    _refused("hw_redirected_usb_ports", _SPICE, "0"),
    _used("hw_qemu_guest_agent", "`channel`, by which the agent inside a guest is asked"),
    _used("os_admin_user", "the user whose password the agent changes"),
    _used("os_require_quiesce", "the agent has to freeze file systems when the disk of a running guest is copied"),
    _refused("os_command_line kernel_id ramdisk_id", "a guest boots from its disk"),
    _none("hw_rescue_bus hw_rescue_device", "a rescue disk is the first, and a disk"),
    _none("hw_vm_mode img_hv_type img_hv_requested_version traits_required", _SCHEDULER),
    _none("img_config_drive", "read by the API: the server has a config drive"),
    _none("img_signature*", "an image with `img_signature` is refused by the API: signatures are not verified"),
    _none("hw_auto_disk_config img_block_device_mapping img_mappings img_bdm_v2 img_root_device_name", _UNREAD),
    _none("img_owner_id", "the image service's own"),
    _none("hw_device_id hw_disk_type hw_ipxe_boot img_bittorrent img_cache_in_nova img_compression_level", _NOVA_TOO),
    _none("img_linked_clone img_use_agent img_version os_skip_agent_*", _NOVA_TOO),
    _none("os_distro", "no default is looked up by it"),
)
"""The first row that fits a key counts. Every other property is its owner's own."""


def row_of(rows: tuple[KeyRow, ...], key: str) -> KeyRow | None:
    """Return the row of a key; None: nothing is known of it."""
    return next((row for row in rows if any(fnmatch.fnmatchcase(key, one) for one in row.keys)), None)


def refused_keys(means: HostMeans) -> RefusedKeys:
    """Return what a host refuses."""
    return RefusedKeys(extra_specs=_rules(EXTRA_SPECS, means), properties=_rules(IMAGE_PROPERTIES, means))


def _rules(rows: tuple[KeyRow, ...], means: HostMeans) -> tuple[KeyRule, ...]:
    closed = ((row, row.taken(means)) for row in rows if not row.is_open)
    return tuple(
        KeyRule(keys=keys, taken=tuple(sorted(taken))) for row, taken in closed if ANY not in taken for keys in row.keys
    )
