"""Networks in user mode: the interfaces of a guest end inside its QEMU, which needs no rights on the host for them.

Each is a small network of its own with the addresses of its subnet: DHCP gives the guest the fixed address of its port,
and nothing else answers. With `restrict=on` QEMU carries nothing out, so the host's loopback, where the control plane
may be, is closed to guests. Where they have a way out, their QEMU is in a network namespace of its own in place of that
(`way_out/`). What leads in is one loopback port of the host to port 22 of the guest.

libvirt knows no words for most of this, so these are arguments for QEMU in the XML. Everything in them is an address, a
number or a word of this module: text of users has no way into them.
"""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.way_out.emulator import OWN
from skep.domain.vifs import Vif

LOOPBACK = "127.0.0.1"
SSH = 22
PLUGGED = "tap"
"""How Skep's own network service says that a port is plugged: as its host likes."""
MODELS = {"virtio": "virtio-net-pci", "e1000": "e1000", "rtl8139": "rtl8139"}
"""Values of `hw_vif_model`, and what they are to QEMU."""
SLOT = 0x10
"""The place of the first interface on the PCI bus: libvirt gives its own devices the first places, and knows of none of
these."""
MOST = 12
"""Interfaces of a guest: the last places of the bus are those of the machine's own devices."""
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)


class UserInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of a guest."""

    mac: str
    mtu: int
    model: str
    address: IPv4Interface
    """The fixed address, in its subnet."""
    host: IPv4Address
    """Of QEMU itself in this network: from it the guest is reached, and has its address."""
    dns: IPv4Address
    """Where QEMU resolves names. Without a way out it does not, but has to be told an address."""
    ssh_port: int | None = None
    """The loopback port that leads to port 22."""
    packed: bool = False
    """It has packed rings, where its model is virtio."""
    way_out: bool = False
    """QEMU carries out what the guest sends, for it is in a namespace of its own."""


def user_interfaces(
    vifs: Sequence[Vif], model: str, ssh_port: int | None = None, *, packed: bool = False, way_out: bool = False
) -> tuple[UserInterface, ...]:
    """Return the interfaces of a guest; the loopback port leads to the first.

    Raises DriverError `InstanceUnacceptable` for a port that cannot be had in user mode.
    """
    if len(vifs) > MOST:
        raise DriverError("InstanceUnacceptable", f"networks: a guest has {MOST} interfaces at most")
    ports = (ssh_port, *(None for _ in vifs))
    found = (_interface(vif, model, port, packed) for vif, port in zip(vifs, ports, strict=False))
    return tuple(msgspec.structs.replace(one, way_out=way_out) for one in found)


def arguments(interfaces: Sequence[UserInterface]) -> Iterator[str]:
    """Yield the arguments for QEMU, in order."""
    for number, one in enumerate(interfaces):
        name = f"user{number}"
        yield "-netdev"
        yield ",".join(("user", f"id={name}", *_network(one)))
        yield "-device"
        yield ",".join(
            (MODELS[one.model], f"netdev={name}", f"addr={SLOT + number:#x}", f"mac={one.mac}", *_device(one))
        )


def free_port(first: int, last: int, taken: Collection[int], server: str) -> int:
    """Return a loopback port that nothing listens on, of a range: the same for a server again, where it can be.

    Raises DriverError `ComputeResourcesUnavailable` where none is left.
    """
    count = last - first + 1
    begin = zlib.crc32(server.encode()) % count
    for number in range(count):
        port = first + (begin + number) % count
        if port not in taken and _is_free(port):
            return port
    raise DriverError("ComputeResourcesUnavailable", f"no loopback port from {first} to {last} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        # As QEMU does: connections that have just ended do not count.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _interface(vif: Vif, model: str, ssh_port: int | None, packed: bool) -> UserInterface:
    if vif.type != PLUGGED or vif.vnic_type != "normal":
        raise _refused(vif, f"{vif.type} ({vif.vnic_type}): a host with networks user plugs no such port")
    if not _MAC.fullmatch(vif.mac_address):
        raise _refused(vif, "its MAC address is none")
    address = _fixed_address(vif)
    if address is None:
        raise _refused(vif, "it has no fixed IPv4 address, which user mode needs")
    others = _others(address)
    if len(others) < 2:
        raise _refused(vif, f"{address.network} is too small for user mode")
    return UserInterface(
        mac=vif.mac_address,
        mtu=vif.mtu,
        model=model,
        address=address,
        host=others[0],
        dns=others[1],
        ssh_port=ssh_port,
        packed=packed,
    )


def _fixed_address(vif: Vif) -> IPv4Interface | None:
    for subnet in vif.subnets:
        if subnet.version == 4 and subnet.addresses:
            return IPv4Interface((subnet.addresses[0].address, IPv4Network(subnet.cidr).prefixlen))
    return None


def _others(address: IPv4Interface) -> list[IPv4Address]:
    """Return two addresses for QEMU in a subnet: the first ones, where a gateway usually is, but for the guest's."""
    network = address.network
    few = (network[number] for number in range(1, min(network.num_addresses, 4)))
    return [one for one in few if one != address.ip][:2]


def _network(one: UserInterface) -> Iterator[str]:
    yield "ipv6=off"
    if not one.way_out:
        yield "restrict=on"
    yield f"net={one.address.network}"
    yield f"host={one.host}"
    yield f"dns={one.dns}"
    yield f"dhcpstart={one.address.ip}"
    if one.ssh_port is not None:
        yield f"hostfwd=tcp:{OWN if one.way_out else LOOPBACK}:{one.ssh_port}-{one.address.ip}:{SSH}"


def _device(one: UserInterface) -> Iterator[str]:
    # No guest boots from its network.
    yield "romfile="
    if one.model == "virtio":
        yield f"host_mtu={one.mtu}"
        if one.packed:
            yield "packed=on"


def _refused(vif: Vif, why: str) -> DriverError:
    return DriverError("InstanceUnacceptable", f"port {vif.id}: {why}")
