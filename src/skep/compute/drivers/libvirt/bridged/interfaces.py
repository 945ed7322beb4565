"""The interfaces of a guest that are plugged into networks of its host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.names import mac, tap
from skep.compute.drivers.libvirt.user_networks import PLUGGED
from skep.domain.vifs import Vif

VIRTIO = "virtio"
MOST = 12
"""Interfaces of a guest: as many as in user mode."""


Bandwidth: TypeAlias = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
"""`inbound` and `outbound`, as far as they have bounds, with libvirt's words: KiB in a second, `burst` KiB."""


class TapInterface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of a guest."""

    device: str
    """The link of the host in which it ends: `Vif.device_name`."""
    mac: str
    mtu: int
    model: str
    """A value of `hw_vif_model`."""
    packed: bool = False
    """It has packed rings: only of the model virtio."""
    queues: int = 1
    """More than one: as many as the link has been made for."""
    bandwidth: Bandwidth = ()


def tap_interfaces(
    vifs: Sequence[Vif], model: str, *, packed: bool = False, bandwidth: Bandwidth = ()
) -> tuple[TapInterface, ...]:
    """Return the interfaces of a guest. Raises DriverError `InstanceUnacceptable` for a port that cannot be had."""
    if len(vifs) > MOST:
        raise DriverError("InstanceUnacceptable", f"networks: a guest has {MOST} interfaces at most")
    return tuple(_interface(vif, model, packed=packed, bandwidth=bandwidth) for vif in vifs)


def _interface(vif: Vif, model: str, *, packed: bool, bandwidth: Bandwidth) -> TapInterface:
    if vif.type != PLUGGED or vif.vnic_type != "normal":
        raise DriverError(
            "InstanceUnacceptable",
            f"port {vif.id}: {vif.type} ({vif.vnic_type}): a host with networks bridge plugs no such port",
        )
    try:
        return TapInterface(
            device=tap(vif.id),
            mac=mac(vif.mac_address),
            mtu=vif.mtu,
            model=model,
            packed=packed and model == VIRTIO,
            bandwidth=bandwidth,
        )
    except ValueError as error:
        raise DriverError("InstanceUnacceptable", f"port {vif.id}: {error}") from error
