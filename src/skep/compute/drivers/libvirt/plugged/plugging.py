"""What a host does for each kind of port: makes links, plugs them, and removes them. Everything here may block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from skep.compute.drivers.libvirt.bridged.host import ensure_taps, links_of, remove_taps
from skep.compute.drivers.libvirt.bridged.programs import ip
from skep.compute.drivers.libvirt.plugged.kinds import Plug
from skep.compute.drivers.libvirt.plugged.switches import OsVif
from skep.domain.ids import InstanceUuid

ALIAS = "skep-port"
"""Of taps that were made for ports of Neutron: networks that Skep itself brings to a host do not know them."""

Act = Callable[[Plug, InstanceUuid, OsVif], None]


class Plugging(NamedTuple):
    """What is done for a kind: what is there already stays, what is gone already is no error. Raises DriverError."""

    plug: Act
    unplug: Act


def _plug_tap(plug: Plug, _instance: InstanceUuid, _switch: OsVif) -> None:
    _ensure_tap(plug)


def _plug_bridge(plug: Plug, _instance: InstanceUuid, _switch: OsVif) -> None:
    if plug.bridge not in links_of():
        ip(
            [
                ("link", "add", "name", plug.bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0"),
                # The host itself is in none of its guests' networks.
                ("link", "set", "dev", plug.bridge, "addrgenmode", "none"),
            ]
        )
    ip([("link", "set", "dev", plug.bridge, "up")])
    _ensure_tap(plug, plug.bridge)


def _plug_switch(plug: Plug, instance: InstanceUuid, switch: OsVif) -> None:
    _ensure_tap(plug)
    switch.plug(plug, instance)


def _plug_hybrid(plug: Plug, instance: InstanceUuid, switch: OsVif) -> None:
    switch.plug(plug, instance)
    _ensure_tap(plug, plug.between)


def _plug_socket(plug: Plug, instance: InstanceUuid, switch: OsVif) -> None:
    if plug.of_switch:
        switch.plug(plug, instance)


def _unplug_tap(plug: Plug, _instance: InstanceUuid, _switch: OsVif) -> None:
    remove_taps([plug.device], ALIAS)


def _unplug_switch(plug: Plug, instance: InstanceUuid, switch: OsVif) -> None:
    remove_taps([plug.device], ALIAS)
    switch.unplug(plug, instance)


def _unplug_socket(plug: Plug, instance: InstanceUuid, switch: OsVif) -> None:
    if plug.of_switch:
        switch.unplug(plug, instance)


def _nothing(_plug: Plug, _instance: InstanceUuid, _switch: OsVif) -> None:
    """libvirt makes the link when the guest starts, and removes it when it ends."""


PLUGGING: Mapping[str, Plugging] = {
    "bridge": Plugging(_plug_bridge, _unplug_tap),
    "tap": Plugging(_plug_tap, _unplug_tap),
    "ovs": Plugging(_plug_switch, _unplug_switch),
    "ovs-hybrid": Plugging(_plug_hybrid, _unplug_switch),
    "macvtap": Plugging(_nothing, _nothing),
    "vhostuser": Plugging(_plug_socket, _unplug_socket),
}
"""By the names of the rows of `KINDS`."""


def _ensure_tap(plug: Plug, bridge: str = "") -> None:
    ensure_taps([plug.device], ALIAS, queues=plug.queues > 1)
    ip(
        [
            ("link", "set", "dev", plug.device, "addrgenmode", "none"),
            ("link", "set", "dev", plug.device, "mtu", str(plug.mtu)),
            *((("link", "set", "dev", plug.device, "master", bridge),) if bridge else ()),
            ("link", "set", "dev", plug.device, "up"),
        ]
    )
