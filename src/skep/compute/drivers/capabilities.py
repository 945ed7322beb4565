"""Which protocol of `base.py` stands for which capability, and which capabilities a driver has."""

from __future__ import annotations

from collections.abc import Mapping

from skep.compute.drivers.base import (
    ConfigDriveDriver,
    ConsoleOutputDriver,
    CrashDumpDriver,
    DiagnosticsDriver,
    Driver,
    ImageDriver,
    InterfacesOfHost,
    MoveDriver,
    NetworksDriver,
    PasswordDriver,
    PauseDriver,
    PowerDriver,
    PreserveDriver,
    RebuildDriver,
    RescueDriver,
    SerialConsoleDriver,
    SnapshotDriver,
    SuspendDriver,
    VncConsoleDriver,
)
from skep.compute.drivers.interfaces import InterfaceDriver
from skep.compute.drivers.live import LiveMigrationDriver
from skep.compute.drivers.volumes import (
    AssistedSnapshotDriver,
    EncryptedVolumes,
    VolumeDriver,
    VolumeExtendDriver,
    VolumeSwapDriver,
)
from skep.domain.capabilities import Capability

PROTOCOLS: Mapping[Capability, type] = {
    Capability.POWER: PowerDriver,
    Capability.PAUSE: PauseDriver,
    Capability.SUSPEND: SuspendDriver,
    Capability.RESCUE: RescueDriver,
    Capability.IMAGE: ImageDriver,
    Capability.CONFIG_DRIVE: ConfigDriveDriver,
    Capability.MOVE: MoveDriver,
    Capability.REBUILD: RebuildDriver,
    Capability.PRESERVE: PreserveDriver,
    Capability.PASSWORD: PasswordDriver,
    Capability.CRASH_DUMP: CrashDumpDriver,
    Capability.NETWORKS: NetworksDriver,
    Capability.CONSOLE_OUTPUT: ConsoleOutputDriver,
    Capability.DIAGNOSTICS: DiagnosticsDriver,
    Capability.SERIAL_CONSOLE: SerialConsoleDriver,
    Capability.VNC_CONSOLE: VncConsoleDriver,
    Capability.SNAPSHOT: SnapshotDriver,
    Capability.LIVE_MIGRATE: LiveMigrationDriver,
    Capability.ATTACH_VOLUME: VolumeDriver,
    Capability.ATTACH_INTERFACE: InterfaceDriver,
    Capability.SWAP_VOLUME: VolumeSwapDriver,
    Capability.EXTEND_VOLUME: VolumeExtendDriver,
    Capability.ASSISTED_SNAPSHOT: AssistedSnapshotDriver,
}
"""A capability without a row here is one that `able` tells, or that no driver can have yet."""


def capabilities_of(driver: Driver) -> frozenset[Capability]:
    """Return the capabilities of which a driver has the whole protocol."""
    return frozenset(capability for capability, protocol in PROTOCOLS.items() if isinstance(driver, protocol))


def able(
    driver: Driver, *, stores_images: bool = False, exchanges: bool = False, wired: bool = False
) -> frozenset[Capability]:
    """Return what a host can do with its driver.

    One that may store no images makes none of its guests. One takes part in cold moves that has an exchange of disks or
    is `wired`, which is to give them from agent to agent; in live migrations and in moves between cells, with an
    exchange only. Any driver makes a guest anew that another host has lost.
    """
    needs = {
        Capability.SNAPSHOT: stores_images,
        Capability.MOVE: exchanges or wired,
        Capability.LIVE_MIGRATE: exchanges,
        Capability.NETWORKS: isinstance(driver, NetworksDriver) and driver.wants_networks,
        Capability.ATTACH_INTERFACE: isinstance(driver, InterfaceDriver) and driver.attaches_interfaces,
    }
    found = {Capability.EVACUATE, *(one for one in capabilities_of(driver) if needs.get(one, True))}
    if isinstance(driver, InterfacesOfHost) and driver.interfaces_of_host:
        found.add(Capability.HOST_INTERFACES)
    if Capability.ATTACH_VOLUME in found and isinstance(driver, EncryptedVolumes) and driver.decrypts_volumes:
        found.add(Capability.ENCRYPTED_VOLUME)
    if Capability.MOVE in found:
        ways = {Capability.MOVE_BETWEEN_CELLS: exchanges, Capability.MOVE_BY_WIRE: wired}
        found.update(way for way, is_there in ways.items() if is_there)
    return frozenset(found)


def missing(capability: Capability, host: str) -> str:
    """Return the error of an action that needs a capability which the driver of the host lacks."""
    return f"NotSupportedByDriver: the driver of host {host} lacks the capability `{capability}`"
