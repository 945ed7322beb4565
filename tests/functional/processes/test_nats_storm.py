"""NATS is killed and halted again and again under load: every call ends, all heals, nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
import structlog

from skep.config.sections import TransportSettings
from skep.contracts.eventually import eventually
from skep.contracts.transport_server import QUESTION, SHORT, Server
from skep.domain.errors import Unavailable
from skep.messages.to_cell_conductor import Permission
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Address
from skep.transport.nats import NatsTransport

HERE = Address("cell.c.conductor")
ROUNDS = 6
CALLERS = 10


@pytest.mark.needs_part("nats-server")
async def test_a_storm_of_losses(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with NatsServer(tmp_path, jetstream=False) as server:
        transports = [NatsTransport(TransportSettings(kind="nats", url=server.url)) for _ in range(3)]
        for transport in transports:
            await transport.open()
            await transport.serve(HERE, Server().handlers)
        outcomes: Counter[str] = Counter()
        over = asyncio.Event()

        async def call_on(transport: NatsTransport, timeout: float) -> bool:
            try:
                return await transport.call(HERE, QUESTION, timeout=timeout) == Permission(granted=True)
            except Unavailable:
                return False

        async def call_often(transport: NatsTransport) -> None:
            while not over.is_set():
                outcomes["answered" if await call_on(transport, 1.0) else "unreachable"] += 1
                await asyncio.sleep(0)

        async def is_away() -> bool:
            return not any(await asyncio.gather(*(call_on(transport, SHORT) for transport in transports)))

        async def is_back() -> bool:
            return all(await asyncio.gather(*(call_on(transport, 1.0) for transport in transports)))

        with structlog.testing.capture_logs() as logged:
            callers = [asyncio.create_task(call_often(one)) for one in transports for _ in range(CALLERS)]
            for number in range(ROUNDS):
                if number % 2:
                    server.pause()
                    await eventually(is_away, "NATS is halted")
                    server.resume()
                else:
                    server.kill()
                    await eventually(is_away, "NATS is gone")
                    await server.start()
                await eventually(is_back, "all is back")
            over.set()
            await asyncio.gather(*callers)
        assert [line for line in logged if line["log_level"] in ("error", "critical")] == []
        assert min(outcomes["answered"], outcomes["unreachable"]) > 0
        assert all(transport.reconnects >= ROUNDS // 2 for transport in transports)
        for transport in transports:
            await transport.close()

    async def nothing_is_left() -> bool:
        return asyncio.all_tasks() <= before

    await eventually(nothing_is_left, "no task of a lost connection is left")
