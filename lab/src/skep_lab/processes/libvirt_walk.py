"""A walk with two hosts of QEMU, each with a libvirtd: the agent of one is killed between two calls of a move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from skep.config.networks import NetworksSettings
from skep.config.sections import Config
from skep.contracts.eventually import PATIENCE
from skep_lab.crash.counting_guests import COUNTS, counted
from skep_lab.crash.libvirt_walk import COUNTS_BOOTS, OPTIONS, LibvirtWalk
from skep_lab.crash.points import Point
from skep_lab.crash.process import CrashProcess
from skep_lab.processes.agents import DyingAgent
from skep_lab.witnesses import witness_rows
from skep_lab.witnesses.witness import Findings
from skep_lab.witnesses.witness_qemu import QemuHost

Side = Literal["here", "there"]
"""The host that has the server when something is asked, and the other one."""
Kind = Literal["cold", "live", "shared", "slow"]
"""Which cloud: disks go from agent to agent; hosts meet in an exchange, and disks are copied while their guests run, or
are on both hosts; likewise copied, but slower than a guest writes."""
LOOPBACK = "127.0.0.1"
SMALL: dict[str, Any] = {"id": "small", "name": "small", "ram": 64, "vcpus": 1, "disk": 0}
"""What guests are that are copied while they run."""
ON_THE_WAY = ("hosts/*/*/arrivals/*", "exchange/*")
"""What of moves is below the state directory of the cloud while they last."""
SLOW = {"migration_mib_per_second": 4}
"""What a guest writes again and again takes longer than it may stand still for."""


class HostOfDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """A host with a libvirtd that runs."""

    name: str
    root: Path
    """Of the daemon."""
    options: Mapping[str, Any]
    """By which the host reaches it, and others do."""


class LibvirtAgentsWalk(LibvirtWalk):
    """Two hosts, each with an agent that is a process, and one server at a time."""

    process: DyingAgent

    def __init__(self, root: Path, kind: Kind, hosts: tuple[HostOfDaemon, ...]) -> None:
        self.kind = kind
        self.side: Side = "here"
        """Which agent dies."""
        self.shared = kind == "shared"
        self.image = COUNTS_BOOTS if kind == "cold" else COUNTS
        self.networks = "auto" if kind == "cold" else "none"
        self.flavor = "1" if kind == "cold" else SMALL["id"]
        self._options: dict[str, dict[str, Any]] = {}
        found: list[QemuHost] = []
        for host in hosts:
            directory = (hosts[0] if self.shared else host).root / "own"
            found.append(QemuHost(name=host.name, directory=directory, daemon=host.root))
            own = {**OPTIONS, **host.options, **(SLOW if kind == "slow" else {}), "directory": str(directory)}
            self._options[host.name] = own
        super().__init__(root, tuple(found))
        self.asked.interfaces = None

    def begun(self, root: Path, config: Config, cells: int, hosts: int) -> CrashProcess:  # noqa: ARG002 - two of one
        """Return the cloud, each of whose hosts has a libvirtd."""
        replace = msgspec.structs.replace
        config = replace(
            config,
            networks=NetworksSettings(kind="embedded", port=0),
            scheduler=replace(config.scheduler, partition=False),
            conductor=replace(config.conductor, allow_resize_to_same_host=False),
            compute=replace(config.compute, move_address=LOOPBACK if self.kind == "cold" else ""),
        )

        def settings(host: str) -> tuple[tuple[str, str], ...]:
            options = msgspec.json.encode(self._options[host]).decode()
            return (("SKEP_COMPUTE__DRIVER", "libvirt"), ("SKEP_COMPUTE__DRIVER_OPTIONS", options))

        return DyingAgent(root, config, cells=1, hosts=len(self._options), host_settings=settings)

    def start(self) -> None:
        """Start the cloud, which has the small flavor."""
        super().start()
        self.process.ask("POST", "/flavors", {"flavor": SMALL}).raise_for_status()

    def rows(self) -> witness_rows.Rows:
        """Read the databases."""
        return self.process.cloud.rows()

    def crash(self, point: Point, trigger: Callable[[], object], *, comes: bool = True) -> None:
        """Have the agent of a side end at a point."""
        [uuid] = self.statuses()
        self.process.victim = self.on(self.side, uuid)
        super().crash(point, trigger, comes=comes)

    def on(self, side: Side, uuid: str) -> str:
        """Return the host of a side."""
        here = self.host_of(uuid)
        return here if side == "here" else next(name for name in self.hosts if name != here)

    def observe(self) -> Findings:
        """Look once. While a guest migrates both hosts know of it; in the end one does."""
        found = super().observe()
        state = self.process.state
        left = [f"{path} is on its way" for name in ON_THE_WAY for path in state.glob(name)]
        if self.kind != "cold":
            homes = [str(one.instance) for host in self.hosts.values() for one in host.lives()]
            left += [f"{uuid} is on both hosts" for uuid in sorted(set(homes)) if homes.count(uuid) > 1]
            found = msgspec.structs.replace(found, double_built=())
        return msgspec.structs.replace(found, leaked=(*found.leaked, *left))

    def write_disk(self, uuid: str, content: bytes) -> None:
        """Wait until the guest does what shows later that it is the same."""
        if self.kind == "cold":
            super().write_disk(uuid, content)
        else:
            self.until(lambda: self._counted(uuid) > 0, "the guest counts")
            self._booted[uuid] = self._counted(uuid)

    def has_disk(self, uuid: str, *, anew: bool) -> bool:
        """Tell whether the guest is the same as it was, or has its disk."""
        if self.kind == "cold":
            return super().has_disk(uuid, anew=anew)
        at = max(self._counted(uuid), self._booted[uuid])
        self.until(lambda: self._counted(uuid) > at, f"the guest counts on, within {PATIENCE} s")
        return True

    def _counted(self, uuid: str) -> int:
        """Return how far a guest has counted; it never did so anew, and its console lacks nothing."""
        row = self._row(uuid)
        console = self.hosts[str(row.host)].directory / "guests" / f"{uuid}_{row.attempt}" / "console.log"
        return counted(console.read_bytes()) if console.exists() else 0
