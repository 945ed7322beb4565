"""What a synchronizer's backend does by itself: publishes, how soon readers see them, a snapshot of all.

    python -m skep_lab.benchmarks.synchronizer_backend postgres     (or: sqlite, or a backend's name and its URL)

One process writes batches of records, two processes follow the changes, as schedulers do, without doing anything with
them. Bodies bear the moment at which their batch was handed to the backend, so a reader knows how old a change is when
it sees it (all processes of a machine have the same monotonic clock).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from skep.config.sections import SynchronizerSettings
from skep.processes.servers.postgres import PostgresServer
from skep.synchronizer.base import Changes, Key, Published, Write
from skep.synchronizer.registry import make_backend

BODY_BYTES = 600
END = "the end"


def main() -> None:
    """Run what the command line says and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", help="postgres, sqlite, or a backend's name")
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=100, help="writes of one publish")
    parser.add_argument("--callers", type=int, default=2, help="publishes at the same time")
    parser.add_argument("--rate", type=float, default=0.0, help="changes per second that are offered; 0: all it takes")
    parser.add_argument("--readers", type=int, default=2)
    options = parser.parse_args()
    with _settings(options) as settings:
        print(json.dumps(_measure(settings, options)))


@contextlib.contextmanager
def _settings(options: argparse.Namespace) -> Iterator[SynchronizerSettings]:
    if options.backend == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield SynchronizerSettings(backend="sql", url=f"sqlite:///{Path(folder) / 'synchronizer.db'}")
    elif options.backend == "postgres":
        with PostgresServer(fsync="on", shared_buffers="256MB") as server:
            yield SynchronizerSettings(backend="sql", url=server.url())
    else:
        yield SynchronizerSettings(backend=options.backend, url=options.url)


def _measure(settings: SynchronizerSettings, options: argparse.Namespace) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    filled = asyncio.run(_fill(settings, options.records, options.batch))
    ready: Queue[Any] = context.Queue()
    readers = [context.Process(target=_read, args=(settings, ready)) for _ in range(options.readers)]
    for reader in readers:
        reader.start()
    snapshots = [ready.get(timeout=120) for _ in readers]
    written = asyncio.run(_write(settings, options))
    ages: list[float] = []
    for _ in readers:
        ages += ready.get(timeout=120)
    for reader in readers:
        reader.join(30)
    ages.sort()
    return {
        "backend": options.backend,
        "records": options.records,
        "filled_per_s": filled,
        "snapshot_s": [round(seconds, 2) for seconds in snapshots],
        **written,
        "changes_seen": len(ages),
        "visible_p50_ms": round(1000 * ages[len(ages) // 2], 1) if ages else None,
        "visible_p99_ms": round(1000 * ages[len(ages) * 99 // 100], 1) if ages else None,
    }


async def _fill(settings: SynchronizerSettings, records: int, batch: int) -> int:
    backend = make_backend(settings)
    await backend.open()
    begun = time.monotonic()
    for start in range(0, records, batch):
        names = range(start, min(start + batch, records))
        await backend.publish(tuple(Write(key=_key(name), expected=0, body=_body(0.0)) for name in names))
    seconds = time.monotonic() - begun
    await backend.close()
    return round(records / seconds)


async def _write(settings: SynchronizerSettings, options: argparse.Namespace) -> dict[str, Any]:
    backend = make_backend(settings)
    await backend.open()
    generations, epoch = [1] * options.records, await backend.epoch()
    begun = time.monotonic()
    took: list[float] = []

    async def call(caller: int) -> int:
        done = 0
        dice = random.Random(caller)
        mine = range(caller, options.records, options.callers)
        while time.monotonic() < begun + options.seconds:
            if options.rate:
                due = begun + (done + dice.random() * options.batch) * options.callers / options.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            names = dice.sample(mine, options.batch)
            body = _body(time.monotonic())
            sent = time.monotonic()
            outcomes = await backend.publish(
                tuple(Write(key=_key(name), expected=generations[name], body=body) for name in names),
                epoch=epoch,
            )
            took.append(time.monotonic() - sent)
            for name, outcome in zip(names, outcomes, strict=True):
                if not isinstance(outcome, Published):
                    raise TypeError(f"nobody else writes, and yet: {outcome}")
                generations[name] = outcome.generation
            done += len(names)
        return done

    total = sum(await asyncio.gather(*(call(caller) for caller in range(options.callers))))
    seconds = time.monotonic() - begun
    await backend.publish((Write(key=Key("compute", END), expected=0, body=b"0"),))
    await backend.close()
    took.sort()
    return {
        "published_per_s": round(total / seconds),
        "publish_p50_ms": round(1000 * took[len(took) // 2], 1),
        "publish_p99_ms": round(1000 * took[len(took) * 99 // 100], 1),
    }


def _read(settings: SynchronizerSettings, ready: Queue[Any]) -> None:
    asyncio.run(_follow(settings, ready))


async def _follow(settings: SynchronizerSettings, ready: Queue[Any]) -> None:
    backend = make_backend(settings)
    await backend.open()
    begun = time.monotonic()
    cursor = (await backend.snapshot()).cursor
    ready.put(time.monotonic() - begun)
    ages: list[float] = []
    ended = False
    while not ended:
        changes = await backend.changes(cursor, wait=5.0)
        if not isinstance(changes, Changes):
            raise TypeError("the cursor is too old")
        now = time.monotonic()
        for record in changes.records:
            if record.key.name == END:
                ended = True
            else:
                ages.append(now - float(record.body.split(b" ", 1)[0]))
        cursor = changes.cursor
    ready.put(ages)
    await backend.close()


def _key(number: int) -> Key:
    return Key("compute", f"{number:08x}-0000-4000-8000-{number:012x}")


def _body(moment: float) -> bytes:
    return (b"%.6f " % moment).ljust(BODY_BYTES, b"x")


if __name__ == "__main__":
    main()
