"""What one scheduler's knowledge costs: loading, applying changes, claiming. Run by hand; prints one JSON object.

    python -m skep_lab.benchmarks.scheduler_columns [load|apply|claim ...] --hosts 100000

What a decision costs is measured by `skep bench scheduler`.

Each part runs in a process of its own, so that its memory is its own. Hosts differ in size, traits and address, as
those of a cloud bought over some years do; a body has about 1.6 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.cli.benchmarks.scheduler.loading import FileBackend
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.messages.to_scheduler import HostReport
from skep.placement.settings import SchedulerSettings
from skep.scheduler import changes, records
from skep.scheduler.commits import Commits
from skep.scheduler.mirror import Mirror
from skep.scheduler.records import BeatValue, CellValue, ComputeValue, HearingValue, beat_key, hearing_key
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key, Record, Write
from skep.synchronizer.memory import MemoryBackend

CELLS = 4
TRAIT_SETS = 20
CLOUD = random.Random(7)


def node_of(number: int) -> NodeUuid:
    """Return the node of a host by its number."""
    return NodeUuid(f"{number:08x}-0000-4000-8000-{number:012x}")


def cell_of(number: int) -> CellUuid:
    """Return the cell of a host by its number."""
    return CellUuid(f"00000000-0000-4000-8000-{number % CELLS:012x}")


def usage_of(number: int, used: int) -> HostUsage:
    """Return what a host reports that uses so many cores."""
    size = 1 + number % 3
    traits = tuple(f"HW_CPU_X86_FEATURE_{(number % TRAIT_SETS) + n:04}" for n in range(30))
    return HostUsage(
        host=f"compute-{number:06}.region-one.example.org",
        hypervisor_hostname=f"compute-{number:06}.region-one.example.org",
        inventory={
            VCPU: Inventory(total=32 * size, allocation_ratio=4.0),
            MEMORY_MB: Inventory(total=131072 * size, reserved=512),
            DISK_GB: Inventory(total=2000 * size),
        },
        used={VCPU: used, MEMORY_MB: used * 1024, DISK_GB: used * 10},
        traits=traits,
        servers=used,
        hypervisor_type="QEMU",
        hypervisor_version=7002000,
        host_ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        cpu_info={"arch": "x86_64", "model": f"Model-{size}", "topology": {"cores": 16 * size, "threads": 2}},
        started_at=1_700_000_000_000_000 + number,
    )


def rss_mib() -> float:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def values(hosts: int) -> Iterator[tuple[Key, Any]]:
    """Yield every record of a cloud: hosts, what the operator wants of them, cells, beats."""
    heard: dict[CellUuid, list[NodeUuid]] = {}
    for number in range(hosts):
        node, cell = node_of(number), cell_of(number)
        usage = usage_of(number, CLOUD.randrange(16))
        heard.setdefault(cell, []).append(node)
        yield Key(records.OPERATOR, node), HostIntent(node=node, host=usage.host, cell=cell)
        report = Report(incarnation=1, seq=1, usage=usage)
        yield Key(records.COMPUTE, node), ComputeValue(cell=cell, report=report)
    for cell, nodes in heard.items():
        yield Key(records.CELLS, cell), CellValue(intent=Cell(uuid=cell, name=cell), asserted=True)
        version = 1
        yield hearing_key(cell, "one", 0), HearingValue(version=version, nodes=tuple(nodes))
        yield beat_key(cell, "one"), BeatValue(pages=(version,), at=1)


async def cloud(hosts: int) -> MemoryBackend:
    """Return a backend that holds a cloud."""
    backend = MemoryBackend(keep_changes=4 * hosts)
    epoch = await backend.epoch()
    for key, value in values(hosts):
        await backend.publish((Write(key=key, expected=0, body=records.encode(epoch, 1, value)),))
    return backend


async def load(options: argparse.Namespace) -> dict[str, Any]:
    """A new scheduler reads all records; the memory is that of a scheduler whose backend is elsewhere."""
    states = HostStates(SchedulerSettings())
    empty = rss_mib()
    stored = FileBackend(options.path)
    began = time.perf_counter()
    reading = await stored.snapshot()
    read = time.perf_counter() - began
    bodies = sum(len(record.body) for record in reading.records)
    del reading
    began, cpu = time.perf_counter(), time.process_time()
    await Mirror(stored, states, time.monotonic).load()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    gc.collect()
    return {
        "hosts": options.hosts,
        "load_s": round(seconds, 2),
        "of_it_reading_s": round(read, 2),
        "cpu_s": round(cpu, 2),
        "cpu_us_per_record": round((cpu - read) * 1e6 / (2 * options.hosts), 2),
        "bodies_mib": round(bodies / 2**20, 1),
        "rss_empty_mib": empty,
        "rss_loaded_mib": rss_mib(),
        "rss_peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "reported": int(states.table.reported[: states.table.size].sum()),
    }


async def store(options: argparse.Namespace) -> dict[str, Any]:
    """Write the records of a cloud into a file, for `load`."""
    made = [
        Record(key=key, generation=1, body=records.encode("stored", 1, value)) for key, value in values(options.hosts)
    ]
    options.path.write_bytes(msgspec.msgpack.encode(made))
    return {"records": len(made)}


async def apply(options: argparse.Namespace) -> dict[str, Any]:
    """Reports that another scheduler merged are read in batches: decoded, held, in the columns."""
    backend = await cloud(options.hosts)
    states = HostStates(SchedulerSettings())
    mirror = Mirror(backend, states, time.monotonic)
    await mirror.load()
    writes: list[Write] = []
    epoch = await backend.epoch()
    dice = random.Random(3)
    result: dict[str, Any] = {"hosts": options.hosts}
    seq = 2
    for batch in (1, 10, 100, 1000):
        spent, done = 0.0, 0
        while done < max(batch, min(options.records, 20 * batch)):
            writes = []
            for number in dice.sample(range(options.hosts), batch):
                held = states.held(Key(records.COMPUTE, node_of(number)))
                seq += 1
                report = HostReport(
                    node=node_of(number),
                    cell=cell_of(number),
                    incarnation=1,
                    seq=seq,
                    usage=usage_of(number, dice.randrange(16)),
                )
                value = changes.merge_report(report)(held.value).value
                body = records.encode(epoch, held.generation + 1, value)
                writes.append(Write(key=Key(records.COMPUTE, node_of(number)), expected=held.generation, body=body))
            await backend.publish(tuple(writes))
            began = time.process_time()
            await mirror.catch_up()
            spent += time.process_time() - began
            done += batch
        result[f"cpu_us_per_record_batch_{batch}"] = round(spent * 1e6 / done, 2)
    decoding = [Record(key=write.key, generation=write.expected + 1, body=write.body) for write in writes]
    began = time.process_time()
    for record in decoding:
        records.decode(epoch, record)
    result["cpu_us_per_record_decode"] = round((time.process_time() - began) * 1e6 / len(decoding), 2)
    return result


async def claim(options: argparse.Namespace) -> dict[str, Any]:
    """Claims are stored, and read by another scheduler: the structures and the backend, without deciding."""
    backend = await cloud(options.hosts)
    states, other = HostStates(SchedulerSettings()), HostStates(SchedulerSettings())
    mirror, following = Mirror(backend, states, time.monotonic), Mirror(backend, other, time.monotonic)
    await mirror.load()
    await following.load()
    commits = Commits(backend, states, mirror, time.monotonic)
    dice = random.Random(3)
    spent = behind = 0.0
    for batch in range(options.records // 500):
        claims = [
            Claim(
                instance=InstanceUuid(f"i{batch}-{number}"),
                attempt=1,
                node=node_of(dice.randrange(options.hosts)),
                resources={VCPU: 1, MEMORY_MB: 512, DISK_GB: 1},
            )
            for number in range(500)
        ]
        began = time.process_time()
        for one in claims:
            states.claims.assume(one)
        await asyncio.gather(
            *(commits.change(Key(records.COMPUTE, one.node), changes.add_claim(one)) for one in claims)
        )
        spent += time.process_time() - began
        began = time.process_time()
        await following.catch_up()
        behind += time.process_time() - began
    stored = options.records // 500 * 500
    return {
        "hosts": options.hosts,
        "cpu_us_per_claim_stored": round(spent * 1e6 / stored, 1),
        "cpu_us_per_claim_followed": round(behind * 1e6 / stored, 1),
    }


def _alone(part: str, rest: list[str]) -> Any:
    """Run one part in a process of its own; return what it printed last."""
    command = [sys.executable, __file__, part, "--here", *rest]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)  # this file
    return json.loads(told.stdout.splitlines()[-1])


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "load": load,
    "apply": apply,
    "claim": claim,
    "store": store,
}


def main() -> None:
    """Run the parts that are named, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["load", "apply", "claim"])
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(asyncio.run(PARTS[options.parts[0]](options))))
        return
    result = {}
    rest = [argument for argument in sys.argv[1:] if argument not in PARTS]
    with tempfile.TemporaryDirectory() as folder:
        rest += ["--path", str(Path(folder) / "records")]
        if "load" in options.parts:
            _alone("store", rest)
        for part in options.parts:
            result[part] = _alone(part, rest)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
