"""A walk with a host of QEMU beside a network service and a volume service, whose guest gets and loses devices.

It makes links, so it is run in network namespaces of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from skep.config.sections import Config
from skep_lab.beside import judge
from skep_lab.beside.process import ProcessBeside
from skep_lab.beside.services import ServicesBeside
from skep_lab.crash.libvirt_operations import points_of
from skep_lab.crash.libvirt_walk import LibvirtWalk
from skep_lab.crash.points import Point
from skep_lab.crash.process import CrashProcess
from skep_lab.witnesses.witness import Findings
from skep_lab.witnesses.witness_qemu import Devices

GIB = 1 << 30

VOLUMES, INTERFACES = "os-volume_attachments", "os-interface"
_PLUGGED = ("virDomainAttachDeviceFlags",) * 2
_UNPLUGGED = ("virDomainDetachDeviceFlags",) * 2
CALLS: Mapping[str, tuple[str, ...]] = {
    "attach-volume": ("os.rename volumes", "os.rename volumes", *_PLUGGED),
    "detach-volume": (*_UNPLUGGED, "os.rename volumes"),
    "attach-interface": (_PLUGGED[0], "os.rename interfaces", "run ip", "run ip", "run ip", _PLUGGED[1]),
    "detach-interface": (*_UNPLUGGED, "run ip", "run ip", "os.rename interfaces"),
}
"""By the name of an operation what is called for it, in order."""


class DeviceCase(msgspec.Struct, frozen=True, kw_only=True):
    """One death of a cloud whose guest gets or loses a device."""

    operation: str
    point: Point

    def __str__(self) -> str:
        """Return what a test is called by."""
        nth = f"-{self.point.nth}" if self.point.nth > 1 else ""
        return f"{self.operation}-{self.point.way}-{self.point.call.replace(' ', '-')}{nth}"


def cases() -> Iterator[DeviceCase]:
    """Yield each place at which the cloud dies."""
    for operation, calls in CALLS.items():
        for point in points_of(calls):
            yield DeviceCase(operation=operation, point=point)


class LibvirtBeside(LibvirtWalk):
    """One host, and one server at a time, with a port and no volume."""

    def __init__(self, root: Path) -> None:
        folder = root / "services"
        folder.mkdir()
        self.services = ServicesBeside(folder)
        self.services.start()
        super().__init__(root)
        self.networks = [{"uuid": self.services.network}]
        # The ports of its servers are elsewhere.
        self.asked.interfaces = None

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:
        """Return the cloud beside the services."""
        return ProcessBeside(self.services, root, self.with_qemu(config, networks="neutron"), cells=cells, hosts=hosts)

    def stop(self) -> None:
        """Stop the cloud, then the services."""
        super().stop()
        self.services.stop()

    def observe(self) -> Findings:
        """Look once, also into the services and at the links of the host."""
        found = super().observe()
        seen = judge.look(self.process.state, self.services)
        beside = judge.differences(seen, self.services.things)
        ports = {f"tap{port}"[:14] for row in seen.rows.values() for port in row.ports}
        links = {name for name in _links() if name.startswith("tap")}
        return msgspec.structs.replace(
            found,
            leaked=(*found.leaked, *beside.leaked, *(f"link {name}" for name in sorted(links - ports))),
            lost=(*found.lost, *beside.lost, *(f"no link {name}" for name in sorted(ports - links))),
        )

    def new_volume(self) -> str:
        """Make a volume that is a file of the host."""
        volume = self.services.new_volume()
        [host] = self.hosts.values()
        place = host.directory / "volumes"
        place.mkdir(exist_ok=True)
        place.chmod(0o711)
        path = place / volume
        path.touch(mode=0o600)
        os.truncate(path, GIB)
        self.services.volumes.reached[volume] = {"driver_volume_type": "local", "device_path": str(path)}
        return volume

    def shown(self, uuid: str) -> Devices:
        """Return what users see of a server's devices."""
        ports = self.process.answer(f"/servers/{uuid}/{INTERFACES}")["interfaceAttachments"]
        volumes = self.process.answer(f"/servers/{uuid}/{VOLUMES}")["volumeAttachments"]
        return Devices(
            macs=frozenset(one["mac_addr"] for one in ports), volumes=frozenset(one["volumeId"] for one in volumes)
        )

    def has(self, uuid: str) -> bool:
        """Tell whether the guest has what users see, now and when it starts next."""
        [host] = self.hosts.values()
        found, shown = list(host.devices(uuid)), self.shown(uuid)
        return found == [shown, shown]


def die_at(walk: LibvirtBeside, case: DeviceCase) -> None:
    """Die there, and see that the guest has what it is to have. Raises AssertionError."""
    uuid, ask = _asking(walk, case.operation)
    before = walk.shown(uuid)
    walk.crash(case.point, ask)
    walk.recovered()
    assert walk.statuses() == {uuid: "ACTIVE"}
    walk.until(lambda: walk.has(uuid), "the guest has what users see")
    assert walk.has_disk(uuid, anew=False)
    assert walk.has_disk(uuid, anew=True), "it has booted once"
    after = walk.shown(uuid)
    changed = len(after.macs | after.volumes) - len(before.macs | before.volumes)
    assert changed == (1 if case.operation.startswith("attach") else -1)


def called(walk: LibvirtBeside, operation: str) -> tuple[str, ...]:
    """Return what the driver calls in an operation that nothing cuts."""
    uuid, ask = _asking(walk, operation)
    walk.process.calls()
    ask()
    walk.well(operation)
    walk.until(lambda: walk.has(uuid), "the guest has what users see")
    return walk.process.calls()


def _asking(walk: LibvirtBeside, operation: str) -> tuple[str, Callable[[], None]]:
    """Have a server where an operation begins; return it, and what asks for that."""
    walk.create("server", 1)
    [uuid] = walk.wait_statuses("ACTIVE")
    walk.well("once it is built")
    walk.write_disk(uuid, b"")
    what, _, kind = operation.partition("-")
    path = f"/servers/{uuid}/{VOLUMES if kind == 'volume' else INTERFACES}"
    body: dict[str, Any] = (
        {"volumeAttachment": {"volumeId": walk.new_volume()}}
        if kind == "volume"
        else {"interfaceAttachment": {"net_id": walk.services.network}}
    )

    def send(method: str, below: str = "", told: object = None) -> None:
        answer = walk.sent(method, f"{path}{below}", told)
        assert answer is None or answer.is_success, answer.text

    if what == "attach":
        return uuid, lambda: send("POST", told=body)
    before = walk.process.answer(path)
    send("POST", told=body)
    walk.well("once it has the device")
    walk.until(lambda: walk.has(uuid), "the guest has what users see")
    [device] = _ids(walk.process.answer(path)) - _ids(before)
    return uuid, lambda: send("DELETE", f"/{device}")


def _ids(shown: Mapping[str, list[dict[str, Any]]]) -> set[str]:
    [devices] = shown.values()
    return {one.get("port_id") or one["volumeId"] for one in devices}


def _links() -> list[str]:
    """Return the names of the links of the host."""
    said = subprocess.run(["ip", "-json", "link"], check=True, capture_output=True).stdout
    return [one["ifname"] for one in json.loads(said)]
