"""How ports are plugged, row by row: what Neutron's binding of a port becomes on a host and in a guest. Pure.

Whatever can be made before its guest is: a network service says that a port is wired once it has seen its link, and
guests are made after that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.arrivals import REFUSED
from skep.compute.drivers.libvirt.bridged.interfaces import MOST, VIRTIO, Bandwidth, TapInterface
from skep.compute.drivers.libvirt.bridged.names import mac, tap, uid
from skep.compute.drivers.libvirt.guest_interfaces import GuestInterface, LinkInterface, SocketInterface
from skep.domain.vifs import Vif, VifDetails

NORMAL = "normal"
SWITCH_BRIDGE = "br-int"
"""The bridge of an Open vSwitch where its binding names none: Neutron's own default."""
_LINK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_MODES = frozenset({"bridge", "vepa", "private", "passthrough"})
_NOTHING = VifDetails()


class Plug(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host has for one port. It is kept as long as the host has it."""

    kind: str
    """The name of a row of `KINDS`."""
    port: str
    network: str
    mac: str
    mtu: int
    device: str = ""
    """The tap in which its guest's interface ends; empty: there is none."""
    bridge: str = ""
    """Of the host, or of an Open vSwitch."""
    between: str = ""
    """The bridge of the host between the tap and the switch, at which rules are kept; empty: none."""
    datapath: str = ""
    source: str = ""
    """The link, or the socket, that the guest gets its interface from, where that is no tap."""
    mode: str = ""
    """How it gets it."""
    queues: int = 1

    @property
    def of_switch(self) -> bool:
        """Whether an Open vSwitch has a port for it."""
        return bool(self.datapath)


class PlugKind(NamedTuple):
    """One way in which ports are plugged."""

    name: str
    vif_type: str
    """Neutron's name of it."""
    about: str
    """What it becomes: for people."""
    read: Callable[[Vif, VifDetails, int], Plug]
    """Returns what the host has to have. Raises ValueError for a binding that says it not."""
    fits: Callable[[VifDetails], bool] = lambda _details: True
    """Which bindings of the type it is for: of two rows with one type, the first that fits."""
    early: bool = True
    """Its link is there before its guest: builds wait until Neutron has wired it."""
    live: bool = True
    """Its guest can go to another host while it runs."""


def plugs_of(vifs: Sequence[Vif], queues: int = 1) -> tuple[Plug, ...]:
    """Return what a host has to have for interfaces. Raises DriverError `InstanceUnacceptable` that names the port."""
    if len(vifs) > MOST:
        raise DriverError("InstanceUnacceptable", f"networks: a guest has {MOST} interfaces at most")
    return tuple(_plug_of(vif, queues) for vif in vifs)


def kind_of(vif: Vif) -> PlugKind:
    """Return the row of a port. Raises DriverError `InstanceUnacceptable`."""
    details = vif.details or _NOTHING
    if vif.vnic_type == NORMAL:
        for kind in KINDS:
            if kind.vif_type == vif.type and kind.fits(details):
                return kind
    known = ", ".join(dict.fromkeys(kind.vif_type for kind in KINDS))
    raise _refused(vif, f"{vif.type} ({vif.vnic_type}): the driver libvirt plugs {known} ({NORMAL}) of Neutron's")


def check_arriving(vifs: Sequence[Vif], host: str) -> None:
    """Look whether a guest with these interfaces can come to a host live: they are told as the host has them.

    Raises DriverError that names the port: `InstanceUnacceptable`, `MigrationPreCheckError`.
    """
    for vif in vifs:
        if vif.beside is None or vif.beside.host != host:
            # What is told of it is of the source.
            raise DriverError(REFUSED, f"port {vif.id}: the network service has not bound it to host {host} yet")
        kind = kind_of(vif)
        if not kind.live:
            raise DriverError(REFUSED, f"port {vif.id}: {kind.vif_type} does not go along while a guest runs")


def interface_of(plug: Plug, model: str, *, packed: bool = False, bandwidth: Bandwidth = ()) -> GuestInterface:
    """Return the interface of a guest. Raises DriverError `InstanceUnacceptable` for bounds that it cannot have."""
    packed = packed and model == VIRTIO
    if plug.device:
        return TapInterface(
            device=plug.device,
            mac=plug.mac,
            mtu=plug.mtu,
            model=model,
            packed=packed,
            queues=plug.queues,
            bandwidth=bandwidth,
        )
    if plug.kind == "macvtap":
        return LinkInterface(
            link=plug.source, mode=plug.mode, mac=plug.mac, model=model, packed=packed, bandwidth=bandwidth
        )
    if bandwidth:
        raise DriverError("InstanceUnacceptable", f"port {plug.port}: quota:vif_*: a socket has no bounds")
    return SocketInterface(path=plug.source, mode=plug.mode, mac=plug.mac, model=model, queues=plug.queues)


def _plug_of(vif: Vif, queues: int) -> Plug:
    try:
        return kind_of(vif).read(vif, vif.details or _NOTHING, queues)
    except ValueError as error:
        raise _refused(vif, str(error)) from error


def _refused(vif: Vif, why: str) -> DriverError:
    return DriverError("InstanceUnacceptable", f"port {vif.id}: {why}")


def _link(text: str | None, key: str) -> str:
    if not text or not _LINK.fullmatch(text):
        raise ValueError(f"binding:vif_details: {key}: {(text or '')[:80]!r} is no name of a link")
    return text


def _plain(vif: Vif, kind: str, queues: int) -> Plug:
    return Plug(
        kind=kind,
        port=uid(vif.id),
        network=uid(vif.network_id),
        mac=mac(vif.mac_address),
        mtu=vif.mtu,
        device=tap(vif.id),
        queues=queues,
    )


def _tap(vif: Vif, _details: VifDetails, queues: int) -> Plug:
    return _plain(vif, "tap", queues)


def _bridge(vif: Vif, details: VifDetails, queues: int) -> Plug:
    # Agents of bridges name them so, and not all of their bindings say it.
    name = _link(details.bridge_name or f"brq{vif.network_id}"[:14], "bridge_name")
    return msgspec.structs.replace(_plain(vif, "bridge", queues), bridge=name)


def _switch(vif: Vif, details: VifDetails, queues: int) -> Plug:
    return msgspec.structs.replace(
        _plain(vif, "ovs", queues),
        bridge=_link(details.bridge_name or SWITCH_BRIDGE, "bridge_name"),
        datapath=details.datapath_type or "system",
    )


def _hybrid(vif: Vif, details: VifDetails, queues: int) -> Plug:
    return msgspec.structs.replace(_switch(vif, details, queues), kind="ovs-hybrid", between=f"qbr{uid(vif.id)}"[:14])


def _macvtap(vif: Vif, details: VifDetails, _queues: int) -> Plug:
    mode = details.macvtap_mode or ""
    if mode not in _MODES:
        raise ValueError(f"binding:vif_details: macvtap_mode: {mode[:80]!r}")
    return msgspec.structs.replace(
        _plain(vif, "macvtap", 1), device="", source=_link(details.macvtap_source, "macvtap_source"), mode=mode
    )


def _socket(vif: Vif, details: VifDetails, queues: int) -> Plug:
    path, mode = details.vhostuser_socket or "", details.vhostuser_mode or ""
    if not path.isprintable() or not PurePosixPath(path).is_absolute():
        raise ValueError("binding:vif_details: vhostuser_socket is no path")
    if mode not in ("client", "server"):
        raise ValueError(f"binding:vif_details: vhostuser_mode: {mode[:80]!r}")
    bridge = _link(details.bridge_name or SWITCH_BRIDGE, "bridge_name") if details.vhostuser_ovs_plug else ""
    return msgspec.structs.replace(
        _plain(vif, "vhostuser", queues),
        device="",
        source=path,
        mode=mode,
        bridge=bridge,
        datapath=(details.datapath_type or "netdev") if bridge else "",
    )


KINDS: tuple[PlugKind, ...] = (
    PlugKind(
        "ovs-hybrid",
        "ovs",
        "a tap in a bridge of its own, and a cable from there to the switch",
        _hybrid,
        fits=lambda details: details.ovs_hybrid_plug,
    ),
    PlugKind("ovs", "ovs", "a tap that is a port of the switch, with the port's id as its `iface-id`", _switch),
    PlugKind(
        "bridge",
        "bridge",
        "a tap in the bridge `bridge_name`, else `brq` and eleven characters of the network's id",
        _bridge,
    ),
    PlugKind("tap", "tap", "a tap, and nothing else: its network is made of routes", _tap),
    PlugKind(
        "macvtap",
        "macvtap",
        "a link of its own on `macvtap_source`, which its guest's start makes",
        _macvtap,
        early=False,
        live=False,
    ),
    PlugKind(
        "vhostuser",
        "vhostuser",
        "the socket `vhostuser_socket`; the guest's memory is shared with the switch",
        _socket,
        live=False,
    ),
)
