"""Makes the driver from the table `[compute.driver_options]`: the entry point `libvirt`.

What is missing on the host is said here, before the agent starts: the client of libvirt, the user that QEMU runs as, a
way for that user to the disks.
"""

from __future__ import annotations

import grp
import importlib.util
import ipaddress
import logging
import os
import pwd
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bases import BasesKept
from skep.compute.drivers.libvirt.bricks import OsBricks
from skep.compute.drivers.libvirt.bridged.networks import BridgedNetworks
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions, bridge_options
from skep.compute.drivers.libvirt.bridged.programs import missing, missing_means
from skep.compute.drivers.libvirt.commands import PATH, Owner
from skep.compute.drivers.libvirt.disk_room import RoomSettings
from skep.compute.drivers.libvirt.kvm_probe import KVM, virt_type_of
from skep.compute.drivers.libvirt.logical_volumes import PROGRAMS, LogicalVolumes
from skep.compute.drivers.libvirt.options import MigrationWay, Options
from skep.compute.drivers.libvirt.plugged.switches import OsVif
from skep.compute.drivers.libvirt.rights import kept_rights
from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds
from skep.compute.drivers.libvirt.way_out.ways import WayOut, make_way_out
from skep.compute.drivers.registry import DriverSetup, RootsDriver, options_of
from skep.config.compute import ComputeSettings
from skep.domain.errors import Misconfigured

if TYPE_CHECKING:
    from skep.compute.drivers.libvirt.disks import GuestDisks
    from skep.compute.drivers.libvirt.driver import LibvirtDriver
    from skep.compute.drivers.libvirt.plugged.ports import GuestPorts

log = logging.getLogger(__name__)

NEEDED = {"libvirt": "libvirt-python", "pycdlib": "pycdlib"}
"""Modules, and the packages that bring them."""
TABLE = "compute.driver_options"
MOUNTS = "mounts"
"""Below the directory: where volumes on NFS are mounted."""
NETWORKS = "networks"
"""Below the directory: what was wanted of the host's networks, and files of dnsmasq."""
ROOT = "libvirt"
"""Below the directory: the state of the libvirt inside the agent."""
UNPRIVILEGED_FAULTS = Path("/proc/sys/vm/unprivileged_userfaultfd")
FAT_PROGRAMS = ("mkfs.vfat", "mcopy")
WAYS: dict[MigrationWay, tuple[str, ...]] = {"tls": ("qemu+tls", "qemu+ssh"), "loopback": ("qemu+unix",)}
"""The way of data -> the schemes of URIs by which other hosts may reach a libvirtd: what is said there is safe, too."""
LONGEST_ROOT = 51
"""Bytes: below the root of an embedded libvirt are sockets, whose paths the system bounds (107)."""
LONGEST_DIRECTORY = LONGEST_ROOT - len(f"/{ROOT}")


def _make_driver(setup: DriverSetup) -> LibvirtDriver:
    """Return the driver of a host. Raises Misconfigured that names the option, or the package that is missing."""
    options = setup.options(Options)
    check_client()
    # What these import is there only where it is needed.
    from skep.compute.drivers.libvirt.connection import LibvirtConnection, embedded
    from skep.compute.drivers.libvirt.disks import GuestDisks
    from skep.compute.drivers.libvirt.driver import LibvirtDriver
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver
    from skep.compute.drivers.libvirt.volumes import GuestVolumes

    _check_drives(options)
    _check_migrations(options)
    directory = Path(options.directory or setup.directory).absolute()
    if options.virt_type == "kvm" and not options.uri and not KVM.exists():
        raise Misconfigured(f"{TABLE}.virt_type: kvm, and the host has no {KVM}")
    try:
        _check_length(directory, options)
        _make(directory)
        user = _user(options) if os.geteuid() == 0 else None
        owner = None if user is None else Owner(user.pw_uid, user.pw_gid)
        if owner is not None:
            _check_way(directory, owner)
        options = _with_virt_type(options, directory, owner)
        uri = options.uri
        if not uri:
            uri = embedded(
                directory / ROOT, None if user is None else user.pw_name, "" if owner is None else _group(owner.gid)
            )
        kept = BasesKept(seconds=options.cache_seconds, most=options.cache_mib << 20)
        fat_drives = options.config_drive_format == "vfat"
        disks = GuestDisks(
            directory,
            owner,
            kept,
            options.disks,
            _logical_volumes(options),
            fat_drives=fat_drives,
            room=RoomSettings(
                reserved=setup.section.reserved_host_disk_mb << 20,
                ratio=setup.section.disk_allocation_ratio,
                fetched=setup.fetched,
            ),
        )
    except OSError as error:
        raise Misconfigured(f"{TABLE}.directory: {error}") from error
    except DriverError as error:
        raise Misconfigured(f"{TABLE}.directory: {error.message}") from error
    bridged = _bridged(options, directory / NETWORKS) if options.networks == "bridge" else None
    ports = _ports(setup.host, options, disks) if options.networks == "neutron" else None
    way_out = _way_out(options, directory, owner) if options.way_out != "none" else None
    kind = LiveMigratingLibvirtDriver if options.migration_uri else LibvirtDriver
    volumes = GuestVolumes(setup.host, disks, VolumeKinds(OsBricks(setup.host, directory / MOUNTS)))
    return kind(setup.host, LibvirtConnection(uri), disks, volumes, options, directory, bridged, ports, way_out)


def _rights(section: ComputeSettings) -> frozenset[str]:
    return kept_rights(options_of(section, Options))


make = RootsDriver(_make_driver, _rights)
"""The entry point."""


def _logical_volumes(options: Options) -> LogicalVolumes | None:
    """Return what makes root disks in logical volumes, if the host does. Raises Misconfigured for what is missing."""
    if options.disks != "lvm":
        return None
    if os.geteuid() != 0:
        raise Misconfigured(f"{TABLE}.disks: lvm needs an agent that is root")
    lacks = [package for program, package in PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    if lacks:
        raise Misconfigured(f"{TABLE}.disks: lvm needs {', '.join(lacks)} (apt-get install {' '.join(lacks)})")
    volumes = LogicalVolumes(options.volume_group)
    try:
        volumes.size()
    except DriverError as error:
        raise Misconfigured(f"{TABLE}.volume_group: {error.message}") from error
    return volumes


def _bridged(options: Options, directory: Path) -> BridgedNetworks:
    """Return the networks of the host, as they were when it was last told. Raises Misconfigured for what is missing."""
    lacks = missing()
    if lacks:
        raise Misconfigured(f"{TABLE}.networks: bridge needs {'; '.join(lacks)}")
    bridged = BridgedNetworks(_bridge_options(options), directory)
    try:
        bridged.claim()
    except OSError as error:
        raise Misconfigured(f"{TABLE}.networks: another host of this machine has bridges ({error})") from error
    try:
        bridged.restore()
    except DriverError as error:
        # The agent soon asks what is wanted, and says again what fails.
        log.error("the networks of the host are not what they were: %s", error)
    return bridged


def _ports(host: str, options: Options, disks: GuestDisks) -> GuestPorts:
    """Return what plugs ports of Neutron. Raises Misconfigured for what all of them need and is missing."""
    from skep.compute.drivers.libvirt.plugged.ports import GuestPorts

    lacks = missing_means(("CAP_NET_ADMIN",), ("ip",))
    if lacks:
        raise Misconfigured(f"{TABLE}.networks: neutron needs {'; '.join(lacks)}")
    switch = OsVif(options.ovsdb)
    if switch.missing():
        log.warning("ports of an Open vSwitch are not plugged here: the host lacks %s", "; ".join(switch.missing()))
    return GuestPorts(host, disks, switch)


def _way_out(options: Options, directory: Path, owner: Owner | None) -> WayOut:
    """Return the way to the outside for guests in user mode. Raises Misconfigured where there is none."""
    try:
        return make_way_out(directory, options.closed_to_guests, owner)
    except DriverError as error:
        raise Misconfigured(f"{TABLE}.way_out: {error.message}") from error
    except OSError as error:
        raise Misconfigured(f"{TABLE}.way_out: {error}") from error
    except ValueError as error:
        raise Misconfigured(f"{TABLE}.closed_to_guests: {error}") from error


def _bridge_options(options: Options) -> BridgeOptions:
    try:
        return bridge_options(options)
    except (ValueError, OSError) as error:
        raise Misconfigured(f"{TABLE}.{error}") from error


def _check_migrations(options: Options) -> None:
    """See that guests go to other hosts by a way that no third party reads."""
    if not options.migration_uri:
        return
    _check_post_copy(options)
    if not options.uri:
        raise Misconfigured(f"{TABLE}.migration_uri: the libvirt inside an agent takes part in none: set {TABLE}.uri")
    scheme, address = urlsplit(options.migration_uri).scheme, options.migration_address
    if scheme not in WAYS[options.migration_way]:
        known = ", ".join(WAYS[options.migration_way])
        raise Misconfigured(
            f"{TABLE}.migration_uri: the way {options.migration_way} needs one of {known}, not {scheme or 'none'}"
        )
    if not address or (options.migration_way == "loopback" and not _is_loopback(address)):
        raise Misconfigured(
            f"{TABLE}.migration_address: the way {options.migration_way} needs "
            + ("an address of the loopback" if options.migration_way == "loopback" else "the name in the certificate")
        )


def _check_post_copy(options: Options) -> None:
    """See that the kernel lets a QEMU that is not root bring what a guest misses of its memory."""
    try:
        allowed = UNPRIVILEGED_FAULTS.read_text().strip() != "0"
    except FileNotFoundError:
        # A kernel from before it was a matter of rights, or without the means; QEMU says which.
        return
    except OSError as error:
        raise Misconfigured(f"{TABLE}.migration_post_copy: {error}") from error
    if options.migration_post_copy and not allowed:
        raise Misconfigured(f"{TABLE}.migration_post_copy: set vm.unprivileged_userfaultfd to 1 (sysctl) on this host")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check_client() -> None:
    """Look whether what the driver imports is installed. Raises Misconfigured that names the package."""
    for module, package in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            raise Misconfigured(
                f"compute.driver: libvirt needs the package {package}, which is not installed: the extra skep[libvirt]"
            )


def _with_virt_type(options: Options, directory: Path, owner: Owner | None) -> Options:
    """Return the options with what guests run with. Raises Misconfigured, OSError."""
    if options.virt_type != "auto":
        return options
    try:
        return msgspec.structs.replace(options, virt_type=virt_type_of(directory, options.probe_kernel, owner))
    except ValueError as error:
        raise Misconfigured(f"{TABLE}.{error}: KVM was tried and is of no use") from error
    except OSError as error:
        raise Misconfigured(f"{TABLE}.virt_type: KVM cannot be tried: {error}") from error


def _check_length(directory: Path, options: Options) -> None:
    if not options.uri and len(os.fsencode(directory)) > LONGEST_DIRECTORY:
        raise Misconfigured(
            f"{TABLE}.directory: {directory} is too long for libvirt's sockets: at most {LONGEST_DIRECTORY}"
        )


def _make(directory: Path) -> None:
    """Make a directory that QEMU's user may pass, whatever the agent's umask is; one that is there stays as it is."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o711)


def _check_drives(options: Options) -> None:
    """See that the host has the programs for the config drives that are wanted."""
    lacks = [name for name in FAT_PROGRAMS if shutil.which(name, path=PATH) is None]
    if options.config_drive_format == "vfat" and lacks:
        raise Misconfigured(f"{TABLE}.config_drive_format: vfat needs {' and '.join(lacks)} (dosfstools, mtools)")


def _user(options: Options) -> pwd.struct_passwd:
    try:
        user = pwd.getpwnam(options.user)
    except KeyError:
        raise Misconfigured(
            f"{TABLE}.user: there is no user {options.user} (scripts/system-packages libvirt)"
        ) from None
    if user.pw_uid == 0:
        raise Misconfigured(f"{TABLE}.user: QEMU never runs as root")
    return user


def _group(gid: int) -> str:
    return grp.getgrgid(gid).gr_name


def _check_way(directory: Path, owner: Owner) -> None:
    """Look whether the user that QEMU runs as may pass all directories above the disks."""
    for path in (directory, *directory.parents):
        found = path.stat()
        if found.st_uid == owner.uid:
            passes = found.st_mode & stat.S_IXUSR
        elif found.st_gid == owner.gid:
            passes = found.st_mode & stat.S_IXGRP
        else:
            passes = found.st_mode & stat.S_IXOTH
        if not passes:
            raise Misconfigured(
                f"{TABLE}.directory: the user that QEMU runs as may not pass {path}: allow it (chmod o+x), or choose "
                "another directory"
            )
