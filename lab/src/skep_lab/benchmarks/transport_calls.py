"""How many calls one process makes and answers, and what each costs.

    python -m skep_lab.benchmarks.transport_calls nats

Prints JSON: calls per second and CPU of this process per call (both ends of the call are in it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from skep.config.sections import TransportSettings
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId
from skep.messages.to_cell_conductor import MayBuild, Permission
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Transport, cell_conductor
from skep.transport.memory import MemoryTransport
from skep.transport.nats import NatsTransport

CELL = cell_conductor("9c3f6c52-0d55-4a0e-9c8a-6a7c2c2d9a11")
CONTEXT = RequestContext(
    request_id=RequestId("req-9c3f6c52-0d55-4a0e-9c8a-6a7c2c2d9a11"),
    project_id=ProjectId("11111111111111111111111111111111"),
    user_id=UserId("22222222222222222222222222222222"),
    roles=("member",),
)
QUESTION = MayBuild(instance=InstanceUuid("d8a5cc5c-1a4c-4ef2-95fd-8d1ce8bb3ae0"), attempt=1, host="cell1-host1")


async def measure(transport: Transport, calls: int, in_flight: int) -> dict[str, Any]:
    """Make `calls` calls, `in_flight` at a time."""

    async def answer(_message: MayBuild, _context: RequestContext | None) -> Permission:
        return Permission(granted=True)

    subscription = await transport.serve(CELL, {MayBuild: answer})
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await transport.call(CELL, QUESTION, context=CONTEXT)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await subscription.close()
    return {
        "in_flight": in_flight,
        "calls": calls,
        "calls_per_s": round(calls / wall),
        "cpu_us_per_call": round(cpu / calls * 1e6, 1),
    }


async def run(kind: str, calls: int) -> list[dict[str, Any]]:
    """Measure one kind of transport, alone and with 100 calls in flight."""
    if kind == "memory":
        return [await measure(MemoryTransport(), calls, number) for number in (1, 100)]
    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder), jetstream=False) as server:
            transport = NatsTransport(TransportSettings(kind="nats", url=server.url))
            await transport.open()
            try:
                return [await measure(transport, number * calls // 100, number) for number in (1, 100)]
            finally:
                await transport.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("memory", "nats"))
    parser.add_argument("--calls", type=int, default=50_000)
    asked = parser.parse_args()
    print(json.dumps({"transport": asked.kind, "runs": uvloop.run(run(asked.kind, asked.calls))}, indent=2))
