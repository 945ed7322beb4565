"""What an operator sets of a host with the driver `libvirt`: the table `[compute.driver_options]`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.config.metadata import SHORTEST_SECRET
from skep.domain.errors import BadRequest
from skep.domain.nested.cpu_sets import cpu_set

VirtType = Literal["kvm", "qemu", "auto"]
"""`auto` is one of the others before anything is made of it."""
MigrationWay = Literal["tls", "loopback"]
ConfigDriveFormat = Literal["iso9660", "vfat"]
Graphics = Literal["vnc", "none"]
NetworksMode = Literal["user", "bridge", "neutron"]
WayOutMode = Literal["none", "slirp4netns"]
DiskForm = Literal["overlay", "raw", "lvm"]


class PciDevices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices that guests may have: an entry of `pci_devices`. What is empty is not looked at."""

    vendor_id: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{4})?$")] = ""
    product_id: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{4})?$")] = ""
    address: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.*?]{1,32}$")] = "*"
    """A shell pattern, as `0000:81:*`."""
    resource_class: Annotated[str, Meta(pattern=r"^(CUSTOM_[A-Z0-9_]{1,248}|PGPU)?$")] = ""
    """Empty: `CUSTOM_PCI_VENDOR_PRODUCT`."""
    traits: tuple[Annotated[str, Meta(pattern=r"^[A-Z0-9_]{1,255}$")], ...] = ()

    def __post_init__(self) -> None:
        """Refuses an entry that means all devices of the host."""
        if not self.vendor_id and not self.address.strip("*?:."):
            raise ValueError("pci_devices: an entry needs a vendor_id, or an address")


class MediatedDevices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of devices that guests may have, as virtual GPUs: an entry of `mediated_devices`."""

    type: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
    """What libvirt calls it, as `nvidia-222`."""
    address: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.*?]{1,32}$")] = "*"
    """A shell pattern of the PCI devices of which they are, as `0000:81:*`."""
    resource_class: Annotated[str, Meta(pattern=r"^(CUSTOM_[A-Z0-9_]{1,248}|VGPU)$")] = "VGPU"
    traits: tuple[Annotated[str, Meta(pattern=r"^[A-Z0-9_]{1,255}$")], ...] = ()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[compute.driver_options]`."""

    virt_type: VirtType
    """`kvm`: by the processor; `qemu`: in software; `auto`: `kvm` where a kernel boots with it. No default: a
    `/dev/kvm` that is there may be of no use."""
    probe_kernel: str = ""
    """With `auto`: the path of a Linux kernel that is booted to try KVM. Empty: the newest one in the host's `/boot`.
    """
    uri: str = ""
    """Of a libvirtd. Empty: libvirt runs inside the agent, with its state in `directory`."""
    directory: str = ""
    """Holds the disks of guests, and libvirt's state. Empty: the directory of the host."""
    user: Annotated[str, Meta(min_length=1)] = "libvirt-qemu"
    """The system user that QEMU runs as, where the agent is root. Otherwise QEMU runs as the agent's user."""
    machine: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "pc"
    """The machine type of guests whose image names none."""
    cpu_model: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}$")] = ""
    """`host-model`, `host-passthrough`, or the name of a model. Empty: `host-model` with `kvm`, else QEMU's default."""
    cpu_shared_set: Annotated[str, Meta(max_length=4096)] = ""
    """CPUs of the host on which guests float, as `0-3,^2`. Empty: all; none where `cpu_dedicated_set` is set."""
    cpu_dedicated_set: Annotated[str, Meta(max_length=4096)] = ""
    """CPUs of the host that guests may have for themselves (PCPU); needs `kvm`. Empty: none."""
    pci_devices: tuple[PciDevices, ...] = ()
    """PCI devices of the host that guests may have for themselves; needs `kvm`, and an IOMMU."""
    mediated_devices: tuple[MediatedDevices, ...] = ()
    """Parts of devices that guests may have; needs `kvm`, and a libvirtd (`uri`). Of a device that several entries fit
    the first one counts."""
    shutdown_seconds: Annotated[float, Meta(ge=0, le=500)] = 60.0
    """So long a guest may take to shut itself down when it is stopped or rebooted softly; then it is switched off."""
    ssh_ports: Annotated[str, Meta(pattern=r"^[1-9][0-9]{3,4}-[1-9][0-9]{3,4}$")] = "20000-29999"
    """Loopback ports of the host, of which each guest with interfaces has one: it leads to its port 22. Beside other
    hosts on one machine they may be the same."""
    detach_seconds: Annotated[float, Meta(ge=1, le=500)] = 160.0
    """So long a guest that runs may take to let go of a volume; then it keeps it."""
    swap_mib_per_second: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    """MiB that are copied in a second at most when another volume comes into the place of one. 0: as fast as it goes.
    """
    console_kib: Annotated[int, Meta(ge=16, le=1 << 20)] = 1024
    """KiB that are kept of what a guest writes to its console, at least; twice as much is on the disk at most, and what
    it writes between two looks at it."""
    disks: DiskForm = "overlay"
    """What root disks the host makes: `overlay`, qcow2 over the bytes of the image, which all its guests share, or
    whole copies of them: `raw`, files, or `lvm`, logical volumes."""
    volume_group: Annotated[str, Meta(pattern=r"^([A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126})?$")] = ""
    """With `lvm`: the volume group of LVM in which root disks are made."""
    cache_seconds: Annotated[float, Meta(ge=0)] = 86400.0
    """So long the bytes of an image stay below `directory` after the end of its last guest."""
    cache_mib: Annotated[int, Meta(ge=0)] = 10240
    """MiB of such bytes that stay at most; the longest unused go first."""
    config_drive_format: ConfigDriveFormat = "iso9660"
    """`iso9660`: config drives are CD-ROMs; `vfat`: disks with FAT."""
    graphics: Graphics = "vnc"
    """`vnc`: guests have a screen, which users see by the API; `none`: they have none. Guests that run follow when they
    are started anew."""
    migration_uri: str = ""
    """How the agents and libvirtds of other hosts reach this host's libvirtd. Empty: no guest goes or comes live."""
    migration_address: str = ""
    """Where QEMU listens for guests that come: what other hosts reach, and what the certificate names."""
    migration_way: MigrationWay = "tls"
    """What memory and disks go through: `tls`, by which both sides prove themselves, or `loopback`, between libvirtds
    of one machine."""
    migration_mib_per_second: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    """MiB that a guest sends in a second at most when it goes to another host. 0: as fast as it goes."""
    migration_post_copy: bool = False
    """Whether a copying that is to end has the guest go on on the target before all of its memory is there, in place of
    pausing it. Both hosts have to allow it. A guest whose hosts lose each other meanwhile stands still."""
    migration_auto_converge: bool = False
    """Whether a guest that writes faster than it is copied is slowed down. Not with post-copy, which needs none."""

    networks: NetworksMode = "user"
    """Where interfaces end: inside QEMU, which needs no rights, in networks of the host: `bridge`, or where Neutron has
    bound their ports: `neutron`."""
    way_out: WayOutMode = "none"
    """With `user`: what guests reach of the outside: nothing, or what slirp4netns, which needs no rights, leads to."""
    ovsdb: Annotated[str, Meta(pattern=r"^(unix:/[!-~]+|(tcp|ssl):[!-~]+:[0-9]{1,5})$")] = (
        "unix:/run/openvswitch/db.sock"
    )
    """With `neutron`: where the database of the host's Open vSwitch is reached."""
    tunnel_address: str = ""
    """With `bridge`: where other hosts reach this one by VXLAN. Empty: networks end at this host."""
    tunnel_port: Annotated[int, Meta(ge=1, le=65535)] = 4789
    """With `bridge`: the UDP port of VXLAN, the same on all hosts."""
    transit: str = "100.127.0.0/16"
    """With `bridge`: addresses between the host and its routers, which nothing else that the host reaches has."""
    outside_interface: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,15}$")] = ""
    """With `bridge`: on which the host answers for floating addresses. Empty: others know that they lead here."""
    closed_to_guests: tuple[str, ...] = ()
    """With `bridge`, or a `way_out`: blocks of addresses that guests do not reach by way of the host, as those of the
    control plane."""
    spaces: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = ""
    """With `bridge`: how the names of the host's network namespaces begin, where several hosts of a machine are in
    namespaces themselves."""
    resolvers: tuple[str, ...] = ()
    """With `bridge`: addresses of who resolves names for guests. Empty: those of the host's `/etc/resolv.conf`, but for
    its loopback."""
    metadata_url: Annotated[str, Meta(pattern=r"^(https?://[^/?#@\s]+/?)?$")] = ""
    """With `bridge`: where the agent asks the metadata service for its guests. Empty: guests have none."""
    metadata_secret: str = ""
    """With `metadata_url`: `[metadata] metadata_proxy_shared_secret` of that service."""

    def __post_init__(self) -> None:
        """Refuses a range of no ports, sets of CPUs that contradict each other, and a secret that is none."""
        first, last = self.ssh_range
        if not 1024 <= first <= last <= 65535:
            raise ValueError("ssh_ports: expected two ports from 1024 to 65535, the smaller one first")
        if self.metadata_url and len(self.metadata_secret) < SHORTEST_SECRET:
            raise ValueError(f"metadata_secret: metadata_url needs one of at least {SHORTEST_SECRET} characters")
        if self.way_out != "none" and (self.networks != "user" or self.uri):
            raise ValueError("way_out: guests have one with networks user, and the libvirt inside the agent, only")
        if self.shared_cpus & self.dedicated_cpus:
            raise ValueError("cpu_dedicated_set: a CPU is in cpu_shared_set, too")
        if (self.disks == "lvm") != bool(self.volume_group):
            raise ValueError("volume_group: the group of logical volumes is set with disks lvm, and only then")
        if self.pci_devices and self.virt_type == "qemu":
            raise ValueError("pci_devices: devices are handed over with virt_type kvm only")
        if self.mediated_devices and (self.virt_type == "qemu" or not self.uri):
            raise ValueError("mediated_devices: they are made by a libvirtd (uri), and given with virt_type kvm only")
        if self.cpu_dedicated_set and self.virt_type == "qemu":
            raise ValueError("cpu_dedicated_set: CPUs are pinned with virt_type kvm only")

    @property
    def shared_cpus(self) -> frozenset[int]:
        """Those of `cpu_shared_set`. Raises ValueError."""
        return _cpus("cpu_shared_set", self.cpu_shared_set)

    @property
    def dedicated_cpus(self) -> frozenset[int]:
        """Those of `cpu_dedicated_set`. Raises ValueError."""
        return _cpus("cpu_dedicated_set", self.cpu_dedicated_set)

    @property
    def ssh_range(self) -> tuple[int, int]:
        """The first and the last of the ports."""
        first, _, last = self.ssh_ports.partition("-")
        return int(first), int(last)


def _cpus(key: str, text: str) -> frozenset[int]:
    try:
        return frozenset(cpu_set(key, text)) if text else frozenset()
    except BadRequest as error:
        raise ValueError(str(error)) from error
