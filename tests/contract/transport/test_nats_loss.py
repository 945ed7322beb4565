"""What callers and servers see when NATS is killed, halted or away, and how it heals by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.transport_server import LONG, QUESTION, SHORT, Server
from skep.domain.errors import Overloaded, Unavailable, Unreachable
from skep.domain.ids import CellUuid
from skep.messages.to_cell_conductor import Permission
from skep.messages.to_super_conductor import CellChanged
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Address
from skep.transport.nats import NatsTransport

pytestmark = pytest.mark.needs_part("nats-server")
Connect = Callable[..., Awaitable[NatsTransport]]
HERE = Address("cell.c.conductor")
GRANTED = Permission(granted=True)


async def test_a_lost_server_ends_calls_at_once_and_all_is_served_again(
    nats_server: NatsServer, connect: Connect
) -> None:
    caller, server_side, server = await connect(), await connect(), Server()
    await server_side.serve(HERE, server.handlers)
    await eventually(lambda: is_served(caller), "the address is served")
    before = caller.reconnects, server_side.reconnects
    server.arrived.clear()
    server.hold()
    asked = asyncio.create_task(caller.call(HERE, QUESTION, timeout=1000.0))
    await asyncio.wait_for(server.arrived.wait(), LONG)
    nats_server.kill()
    async with asyncio.timeout(LONG):
        with pytest.raises(Unreachable, match="connection to NATS was lost"):
            await asked
    server.go_on.set()
    with pytest.raises(Unreachable, match="there is no connection to NATS"):
        await caller.call(HERE, QUESTION, timeout=SHORT)
    await caller.cast(HERE, CellChanged(cell=CellUuid("c")))
    assert caller.refusals.counts["cast", "away"] == 1
    waits = asyncio.create_task(caller.call(HERE, QUESTION, timeout=LONG))
    await nats_server.start()
    await eventually(lambda: is_served(caller), "the address is served again")
    # Or the caller was back before the one that serves.
    assert (await asyncio.gather(waits, return_exceptions=True))[0] == GRANTED or "no process serves" in str(
        waits.exception()
    )
    assert (caller.reconnects, server_side.reconnects) == (before[0] + 1, before[1] + 1)


async def is_served(caller: NatsTransport) -> bool:
    try:
        return await caller.call(HERE, QUESTION, timeout=1.0) == GRANTED
    except Unavailable:
        return False


async def test_whoever_serves_is_found_from_then_on(connect: Connect) -> None:
    """The server knows the address before `serve` returns, each time of many."""
    caller, server_side, server = await connect(), await connect(), Server()
    for number in range(200):
        address = Address(f"cell.c{number}.conductor")
        await server_side.serve(address, server.handlers)
        assert await caller.call(address, QUESTION, timeout=LONG) == GRANTED


async def test_an_address_served_while_nats_is_away_is_served_once_it_is_back(
    nats_server: NatsServer, connect: Connect
) -> None:
    transport, gone, server = await connect(), Server(granted=False), Server()
    former = await transport.serve(HERE, gone.handlers)
    nats_server.kill()

    async def is_away() -> bool:
        return not transport.connected

    await eventually(is_away, "the loss is noticed")
    await transport.serve(HERE, server.handlers)
    await former.close()
    await nats_server.start()
    assert await transport.call(HERE, QUESTION, timeout=LONG) == GRANTED
    assert gone.taken == []


async def test_a_halted_server_makes_nobody_wait_beyond_the_deadline_and_fills_no_memory(
    nats_server: NatsServer, connect: Connect
) -> None:
    transport, server = await connect(max_pending=50), Server()
    await transport.serve(HERE, server.handlers)

    async def is_halted() -> bool:
        try:
            await transport.call(HERE, QUESTION, timeout=SHORT)
        except Unreachable as error:
            return "did not answer MayBuild in" in str(error)
        return False

    nats_server.pause()
    try:
        await eventually(is_halted, "a call ends at its deadline")
        big = CellChanged(cell=CellUuid("c" * 500_000))

        async def is_full() -> bool:
            for _ in range(10):
                await transport.cast(HERE, big)
            return transport.refusals.counts["cast", "overloaded"] > 0

        await eventually(is_full, "what waits to be sent is bounded")
        with pytest.raises(Overloaded):
            await transport.call(HERE, QUESTION, timeout=LONG)
    finally:
        nats_server.resume()
    await eventually(lambda: is_served(transport), "all is served again")


async def test_calls_that_wait_are_bounded(connect: Connect) -> None:
    transport, server = await connect(max_pending=2), Server()
    server.hold()
    await transport.serve(HERE, server.handlers)
    calls = [asyncio.create_task(transport.call(HERE, QUESTION, timeout=LONG)) for _ in range(2)]
    await asyncio.wait_for(server.arrived.wait(), LONG)
    with pytest.raises(Overloaded, match="2 calls wait"):
        await transport.call(HERE, QUESTION)
    server.go_on.set()
    assert await asyncio.gather(*calls) == [GRANTED] * 2


async def test_a_process_that_leaves_in_good_order_loses_no_call(connect: Connect) -> None:
    caller, leaves, stays = await connect(), await connect(), await connect()
    servers = Server(), Server()
    leaving = await leaves.serve(HERE, servers[0].handlers)
    await stays.serve(HERE, servers[1].handlers)

    async def call_often() -> int:
        for _ in range(100):
            assert await caller.call(HERE, QUESTION, timeout=LONG) == GRANTED
        return 100

    callers = [asyncio.create_task(call_often()) for _ in range(5)]
    await asyncio.wait_for(servers[0].arrived.wait(), LONG)
    await leaving.close()
    await leaves.close()
    assert sum(await asyncio.gather(*callers)) == sum(len(server.taken) for server in servers) == 500
    assert min(len(server.taken) for server in servers) > 0


async def test_of_several_processes_the_living_take_all(connect: Connect) -> None:
    caller, dies, lives = await connect(), await connect(), await connect()
    servers = Server(), Server()
    await dies.serve(HERE, servers[0].handlers)
    await lives.serve(HERE, servers[1].handlers)
    await dies.close()

    async def nothing_is_lost() -> bool:
        return all(await asyncio.gather(*(is_served(caller) for _ in range(20))))

    await eventually(nothing_is_lost, "NATS noticed the end of one process")
    before = len(servers[0].taken)
    assert await nothing_is_lost()
    assert len(servers[0].taken) == before


async def test_clouds_that_share_a_server_hear_nothing_of_each_other(connect: Connect) -> None:
    mine, yours, server = await connect(prefix="mine"), await connect(prefix="yours"), Server()
    await mine.serve(HERE, server.handlers)
    with pytest.raises(Unreachable, match="no process serves"):
        await yours.call(HERE, QUESTION)
    assert await mine.call(HERE, QUESTION) == GRANTED


async def test_a_burst_of_casts_is_sent_whole(connect: Connect) -> None:
    transport, server = await connect(max_pending=1000), Server()
    await transport.serve(HERE, server.handlers)
    for _ in range(20_000):
        await transport.cast(HERE, CellChanged(cell=CellUuid("c")))

    async def all_taken() -> bool:
        return len(server.taken) == 20_000

    await eventually(all_taken, "every cast arrived")


async def test_closing_ends_what_waits(connect: Connect) -> None:
    transport, server = await connect(), Server()
    server.hold()
    served: Any = await transport.serve(HERE, server.handlers)
    call = asyncio.create_task(transport.call(HERE, QUESTION, timeout=1000.0))
    await asyncio.wait_for(server.arrived.wait(), LONG)
    await transport.close()
    async with asyncio.timeout(LONG):
        with pytest.raises(Unreachable):
            await call
        with pytest.raises(Unreachable, match="not open"):
            await transport.call(HERE, QUESTION, timeout=1000.0)
        server.go_on.set()
        await served.close()
    await transport.close()
