"""The ports that attempts have at a host: a file beside the disks of each attempt says which.

A port is named there before it is plugged, and the name goes after it was unplugged, so that whatever dies leaves
nothing plugged that no file names. One that comes from another server of the host is taken from the file of that.
Other hosts may see the same directories: what their files say is about them alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError, NamedResource
from skep.compute.drivers.libvirt.disks import INTERFACES, GuestDisks
from skep.compute.drivers.libvirt.files import guarded
from skep.compute.drivers.libvirt.guest_interfaces import GuestInterface
from skep.compute.drivers.libvirt.plugged.kinds import Plug, interface_of, kind_of, plugs_of
from skep.compute.drivers.libvirt.plugged.plugging import PLUGGING
from skep.compute.drivers.libvirt.plugged.switches import OsVif
from skep.compute.drivers.libvirt.properties import Wishes
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance


class PortsAtHost(msgspec.Struct, frozen=True):
    """The content of the file."""

    plugs: tuple[Plug, ...] = ()
    host: str = ""
    """Which host it is: others may see the same directories. Releases before this field did not say."""


_decoder = json_decoder(PortsAtHost)


class GuestPorts:
    """The ports of the guests of one host. All calls may block; of one server there is one at a time."""

    def __init__(self, host: str, disks: GuestDisks, switch: OsVif) -> None:
        self._host = host
        self._disks = disks
        self._switch = switch
        self._plugging = threading.Lock()
        """Held while links and files are looked at and changed."""

    def planned(self, instance: Instance) -> tuple[NamedResource, ...]:
        """Name what is made of a server's ports before its guest. Raises DriverError for a port that cannot be had."""
        if not instance.vifs:
            return ()
        plugs = plugs_of(instance.vifs)
        for one in plugs:
            if one.of_switch:
                self._switch.check(one.port)
        early = all(kind_of(vif).early for vif in instance.vifs)
        return (NamedResource(name=INTERFACES, kind="interfaces", interfaces=early),)

    def interfaces(self, instance: Instance, wished: Wishes) -> tuple[GuestInterface, ...]:
        """Return the interfaces of a guest. Raises DriverError for a port that cannot be had."""
        return tuple(
            interface_of(plug, wished.vif_model, packed=wished.packed, bandwidth=wished.bandwidth)
            for plug in plugs_of(instance.vifs, wished.queues)
        )

    def plug(self, instance: Instance, attempt: int, queues: int) -> None:
        """Plug the ports of a server, in place of what the attempt has; what another attempt has stays as it is, for
        its guest may run. Raises DriverError."""
        wanted = plugs_of(instance.vifs, queues)
        with self._plugging:
            kept = self._of(instance.uuid, attempt)
            if not wanted and not kept:
                return
            self._disks.make_place(instance.uuid, attempt)
            self._unplug(instance.uuid, attempt, [one for one in kept if one not in wanted])
            self._write(instance.uuid, attempt, wanted)
            self._take_from_others(instance.uuid, wanted)
            held = self._of_others(instance.uuid, attempt)
            for one in wanted:
                if one.port not in held:
                    PLUGGING[one.kind].plug(one, instance.uuid, self._switch)

    def add(self, instance: Instance, attempt: int, queues: int) -> None:
        """Plug ports of a server beside those that the attempt has. Raises DriverError."""
        wanted = plugs_of(instance.vifs, queues)
        for one in wanted:
            if one.of_switch:
                self._switch.check(one.port)
        ports = {one.port for one in wanted}
        with self._plugging:
            others = [one for one in self._of(instance.uuid, attempt) if one.port not in ports]
            self._write(instance.uuid, attempt, (*others, *wanted))
            self._take_from_others(instance.uuid, wanted)
            for one in wanted:
                PLUGGING[one.kind].plug(one, instance.uuid, self._switch)

    def remove(self, instance: InstanceUuid, attempt: int, port: str) -> None:
        """Unplug a port of an attempt; one that it has not is no error. Raises DriverError."""
        with self._plugging:
            kept = self._of(instance, attempt)
            if any(one.port == port for one in kept):
                self._unplug(instance, attempt, [one for one in kept if one.port == port])
                self._write(instance, attempt, tuple(one for one in kept if one.port != port))

    def again(self, instance: InstanceUuid, attempt: int) -> None:
        """Plug what an attempt has once more, before its guest starts: the host may have been switched off.

        Raises DriverError.
        """
        with self._plugging:
            self._claim(instance, attempt)
            for one in self._of(instance, attempt):
                PLUGGING[one.kind].plug(one, instance, self._switch)

    def claim(self, instance: InstanceUuid, attempt: int) -> None:
        """Write down that what an attempt has is at this host, where an earlier release has not. Raises DriverError."""
        with self._plugging:
            self._claim(instance, attempt)

    def let_go(self, instance: InstanceUuid, attempt: int) -> None:
        """Unplug all ports of an attempt, but for those that another attempt has, too. Raises DriverError."""
        with self._plugging:
            self._unplug(instance, attempt, self._of(instance, attempt))
            guarded(lambda: self._path(instance, attempt).unlink(missing_ok=True))

    def taken(self, instance: InstanceUuid, attempt: int) -> frozenset[str]:
        """Return the taps that another server has got which an attempt has no more, or never had."""
        mine = {one.device for one in self._of(instance, attempt)}
        others = (said.plugs for path, said in self._here() if _server_of(path) != instance)
        return frozenset(one.device for plugs in others for one in plugs) - mine - {""}

    def _claim(self, instance: InstanceUuid, attempt: int) -> None:
        said = _read(self._path(instance, attempt))
        if said.plugs and said.host != self._host:
            self._write(instance, attempt, said.plugs)

    def _unplug(self, instance: InstanceUuid, attempt: int, plugs: Sequence[Plug]) -> None:
        held = self._of_others(instance, attempt) if plugs else set()
        for one in plugs:
            if one.port not in held:
                PLUGGING[one.kind].unplug(one, instance, self._switch)

    def _take_from_others(self, instance: InstanceUuid, wanted: Sequence[Plug]) -> None:
        """Unplug ports from other servers which this one has got: the guests there have dead ends of them.

        A port is one server's at a time, by the word of the network service; the row of the other one has lost it.
        """
        ports = {one.port for one in wanted}
        for path, said in self._here():
            lost = [one for one in said.plugs if one.port in ports]
            if lost and _server_of(path) != instance:
                for one in lost:
                    PLUGGING[one.kind].unplug(one, _server_of(path), self._switch)
                _write(path, PortsAtHost(tuple(one for one in said.plugs if one not in lost), said.host))

    def _of_others(self, instance: InstanceUuid, attempt: int) -> set[str]:
        mine = self._path(instance, attempt)
        return {one.port for path, said in self._here() if path != mine for one in said.plugs}

    def _of(self, instance: InstanceUuid, attempt: int) -> tuple[Plug, ...]:
        return _read(self._path(instance, attempt)).plugs

    def _here(self) -> Iterator[tuple[Path, PortsAtHost]]:
        """Return the files that are this host's, or may be, and what each says. Raises DriverError."""
        for path in self._disks.files_of(INTERFACES):
            said = _read(path)
            if said.host in ("", self._host):
                yield path, said

    def _path(self, instance: InstanceUuid, attempt: int) -> Path:
        return self._disks.place(instance, attempt) / INTERFACES

    def _write(self, instance: InstanceUuid, attempt: int, plugs: tuple[Plug, ...]) -> None:
        _write(self._path(instance, attempt), PortsAtHost(plugs, self._host))


def _server_of(path: Path) -> InstanceUuid:
    """Return the server of a file of an attempt, whose directory is named by both."""
    return InstanceUuid(path.parent.name.rpartition("_")[0])


def _write(path: Path, said: PortsAtHost) -> None:
    guarded(lambda: write_whole(path, msgspec.json.encode(said)))


def _read(path: Path) -> PortsAtHost:
    """Return what a file says; nothing where it is not there. Raises DriverError."""
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return PortsAtHost()
    except (OSError, msgspec.DecodeError) as error:
        raise DriverError("StorageUnavailable", f"{path}: {error}") from error
