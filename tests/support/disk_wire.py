"""The two hosts of a cold move whose disks go from agent to agent: a source with its doors, a target that fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from skep.compute import disk_fetching
from skep.compute.arrivals import Arrivals
from skep.compute.disk_doors import DiskDoors
from skep.compute.disk_fetching import DiskFetching
from skep.compute.disk_wire import BLOCK, Pace, RunProof
from skep.compute.drivers.fake import FakeDriver
from skep.compute.host import Host
from skep.compute.upcalls import Upcalls
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.disk_doors import DiskDoor
from skep.domain.ids import InstanceUuid
from skep.messages.to_compute import MoveStep

ONE = InstanceUuid("11111111-0000-4000-8000-000000000001")
MOVE = "00000000-0000-4000-8000-00000000a001"
ORDER = cast(MoveStep, SimpleNamespace(instance=SimpleNamespace(uuid=ONE), attempt=2, move=MOVE))
CONTENT = b"written by the guest" * BLOCK
"""Some MiB."""
HOLES = b"a" * BLOCK + bytes(8 * BLOCK) + b"b" * 10 + bytes(3 * BLOCK)


class _Driver(FakeDriver):
    """Keeps the files of one directory, whatever is asked for, and gives them once it may."""

    files: Mapping[str, Path]

    def __init__(self, directory: Path, host: str) -> None:
        super().__init__(directory, host)
        self.may_give = asyncio.Event()
        self.may_give.set()
        self.given: list[int] = []
        """Of which attempts, in the order in which it was asked."""

    async def kept(self, instance: InstanceUuid, attempt: int) -> Mapping[str, Path]:  # noqa: ARG002 - the port says so
        self.given.append(attempt)
        await self.may_give.wait()
        return self.files


class Source:
    """A host that has put a guest aside, and its doors."""

    def __init__(self, directory: Path, pace: Pace) -> None:
        self.directory = directory
        directory.mkdir()
        self.driver = _Driver(directory, "source")
        self.opened = SimpleNamespace(aside=MOVE)
        self.record = SimpleNamespace(open={1: self.opened}, terminate_up_to=0)
        journal = SimpleNamespace(attempts=SimpleNamespace(get=lambda _instance: self.record))
        self._host = cast(Host, SimpleNamespace(name="source", driver=self.driver, journal=journal))
        self.proof = RunProof("source")
        self.doors = DiskDoors(self._host, self.proof, "127.0.0.1", pace)

    def keep(self, **files: bytes) -> None:
        """Have files as the disks of the guest."""
        for name, content in files.items():
            (self.directory / name).write_bytes(content)
        self.driver.files = {name: self.directory / name for name in files}

    async def restart(self) -> None:
        """End as the death of the agent would, and begin again."""
        await self.doors.close()
        self.proof = RunProof("source")
        self.doors = DiskDoors(self._host, self.proof, "127.0.0.1", Pace(0))


class Asking:
    """Asks a source for doors, as a target does through its conductor."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.asked = 0

    async def disks(self, order: MoveStep, certificate: bytes) -> DiskDoor:
        """Have the source open a door."""
        self.asked += 1
        return await self.source.doors.open(order.instance.uuid, 1, order.move, certificate)


class Target:
    """A host that fetches."""

    def __init__(self, directory: Path, asking: Any) -> None:
        self.arrivals = Arrivals(directory)
        self.proof = RunProof("target")
        self.asking = asking
        self.fetching = DiskFetching(cast(Upcalls, asking), self.proof, self.arrivals)

    @property
    def place(self) -> Path:
        """Where files stand until they are whole."""
        return self.arrivals.place(MOVE, 2)

    async def fetch(self) -> dict[str, bytes]:
        """Return the content of all files that came."""
        async with asyncio.timeout(PATIENCE):
            files = await self.fetching.fetch(ORDER)
        assert files is not None
        assert all(path.parent == self.place for path in files.values())
        return {name: path.read_bytes() for name, path in files.items()}


async def late() -> None:
    """Let more time pass than a target waits."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 2 * disk_fetching.UNHEARD_SECONDS

    async def is_late() -> bool:
        return loop.time() > until

    await eventually(is_late, "no byte came for longer than a target waits")
