"""A new scheduler reads the records of a whole cloud: what a start costs."""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from skep.cli.benchmarks.scheduler.hosts import MadeUpCloud
from skep.domain.decoding import msgpack_decoder
from skep.placement.settings import SchedulerSettings
from skep.scheduler import records
from skep.scheduler.mirror import Mirror
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Cursor, Epoch, Record, Snapshot
from skep.synchronizer.memory import MemoryBackend
from skep.telemetry import logs

_EPOCH = "stored"


class FileBackend(MemoryBackend):
    """A backend whose snapshot lies in a file, so that it holds nothing itself, as one that is a server elsewhere."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def snapshot(self) -> Snapshot:
        """Read the file."""
        packed = msgpack_decoder(tuple[Record, ...]).decode(self._path.read_bytes())
        return Snapshot(epoch=Epoch(_EPOCH), records=packed, cursor=Cursor(f"{_EPOCH}/0"))


class LoadResult(msgspec.Struct, frozen=True):
    """What it came to."""

    seconds: float
    cpu_seconds: float
    hosts: int
    """That are known and have reported."""


def load(hosts: int, seed: int) -> LoadResult:
    """Write the records of a made-up cloud into a file and have a scheduler begin with them."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        path = Path(name) / "records"
        logs.configure("warning", stream=sys.stderr)
        _store(path, MadeUpCloud(hosts, seed))
        gc.collect()
        states = HostStates(SchedulerSettings())
        cpu, began = time.process_time(), time.perf_counter()
        asyncio.run(Mirror(FileBackend(path), states, time.monotonic).load())
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return LoadResult(seconds, cpu_seconds, int(states.table.ready.sum()))


def _store(path: Path, cloud: MadeUpCloud) -> None:
    made = [Record(key=key, generation=1, body=records.encode(_EPOCH, 1, value)) for key, value in cloud.values()]
    path.write_bytes(msgspec.msgpack.encode(made))
