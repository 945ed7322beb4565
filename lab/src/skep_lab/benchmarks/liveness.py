"""What beats, reports and the operator's state cost one scheduler when little or nothing changes.

    python -m skep_lab.benchmarks.liveness [HOSTS]

One cell, one scheduler on the memory backend, messages encoded. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

import structlog

from skep.cell_conductor.hearing import PAGES_TOLD, Hearing
from skep.database.api.operator_state import parts
from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid, new_uuid
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import HostReport, PublishOperatorState, UpdateHostState
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Epoch, Published, Refusal, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.codec import encode
from skep.transport.memory import MemoryTransport

CELL = CellUuid("11111111-1111-4111-8111-111111111111")
REPORTS = 200
BEATS = 50


class CountingBackend(MemoryBackend):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.writes = 0

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        self.bytes += sum(len(write.body) for write in writes)
        self.writes += len(writes)
        return await super().publish(writes, epoch=epoch)


class Bench:
    """One scheduler and one cell."""

    def __init__(self, hosts: int) -> None:
        self.nodes = [NodeUuid(new_uuid()) for _ in range(hosts)]
        self.transport = MemoryTransport()
        self.backend = CountingBackend()
        self.service = SchedulerService(self.transport, self.backend, SchedulerSettings(partition=False), Clock())
        self.hearing = Hearing()

    async def publish(self) -> float:
        """Publish the operator's state; return the seconds."""
        wishes = (HostIntent(node=node, host=f"h{number}", cell=CELL) for number, node in enumerate(self.nodes))
        state = PublishOperatorState(hosts=tuple(wishes), aggregates=(), cells=(Cell(uuid=CELL, name="one"),))
        messages = parts(state)
        began = time.perf_counter()
        for message in messages:
            await self.transport.call(SCHEDULER, message)
        return time.perf_counter() - began

    async def report(self) -> float:
        """Report all hosts; return the microseconds of one."""
        inventory = {"VCPU": Inventory(total=64, allocation_ratio=4.0), "MEMORY_MB": Inventory(total=262144)}
        reports = [
            HostReport(
                node=node,
                cell=CELL,
                incarnation=1,
                seq=1,
                usage=HostUsage(host=f"h{number}", inventory=inventory, used={"VCPU": 0}, traits=("HW_CPU_X86_AVX2",)),
            )
            for number, node in enumerate(self.nodes)
        ]
        began = time.perf_counter()
        for start in range(0, len(reports), REPORTS):
            await self.transport.call(SCHEDULER, UpdateHostState(reports=tuple(reports[start : start + REPORTS])))
        return (time.perf_counter() - began) / len(reports) * 1e6

    async def beat(self) -> dict[str, Any]:
        """Beat once, as a cell conductor does; return what it took."""
        wanted, sent = self.hearing.untold(), 0
        self.backend.bytes = 0
        began = time.perf_counter()
        while True:
            told = self.hearing.pages(wanted[:PAGES_TOLD])
            message = Beat(cell=CELL, conductor="run", pages=self.hearing.versions, told=told)
            sent += len(encode(message, None))
            reply = await self.transport.call(SCHEDULER, message)
            self.hearing.note_told(told)
            wanted = list(reply.wanted)
            if not wanted:
                break
        seconds = time.perf_counter() - began
        return {"ms": round(seconds * 1000, 3), "message_bytes": sent, "record_bytes": self.backend.bytes}

    def hear(self, nodes: list[NodeUuid], now: float) -> None:
        """Hear these, and judge who is silent a second and a half later."""
        for node in nodes:
            self.hearing.hear(node, now)
        self.hearing.look(now + 1.5)


async def measure(hosts: int) -> dict[str, Any]:
    """Return all figures."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    bench = Bench(hosts)
    await bench.service.start()
    found: dict[str, Any] = {"hosts": hosts}
    found["publish_s"], found["publish_again_s"] = round(await bench.publish(), 3), round(await bench.publish(), 3)
    found["report_us"] = round(await bench.report(), 1)
    bench.backend.writes = 0
    found["repeat_us"], found["repeat_writes"] = round(await bench.report(), 1), bench.backend.writes
    bench.hear(bench.nodes, 0.0)
    found["beat_first"] = await bench.beat()
    same = [await bench.beat() for _ in range(BEATS)]
    found["beat_same"] = sorted(same, key=lambda one: float(one["ms"]))[BEATS // 2]
    bench.hear(bench.nodes[1:], 10.0)
    found["beat_one_silent"] = await bench.beat()
    bench.hear(bench.nodes[hosts // 2 :], 20.0)
    found["beat_half_silent"] = await bench.beat()
    await bench.service.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))))
