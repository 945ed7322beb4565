"""Replies of memcached, however the network cuts them."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.errors import Unreachable
from skep.synchronizer.memcached.connection import MemcachedConnection, MemcachedReply

LINES = (
    b"HD c17\r\n",
    b"HD\r\n",
    b"VA 5 c3\r\nab\r\nc\r\n",
    b"VA 0 c4\r\n\r\n",
    b"VA 2 f1 c9\r\nxy\r\n",
    b"HD c5 f1\r\n",
    b"EN\r\n",
    b"NF c0\r\n",
    b"NS c0\r\n",
    b"EX c0\r\n",
    b"SERVER_ERROR object too large for cache\r\n",
    b"ERROR\r\n",
    b"STAT evictions 3\r\nSTAT version 1.6.18\r\nEND\r\n",
)
REPLIES = [
    MemcachedReply(b"HD", 17),
    MemcachedReply(b"HD"),
    MemcachedReply(b"VA", 3, 0, b"ab\r\nc"),
    MemcachedReply(b"VA", 4),
    MemcachedReply(b"VA", 9, 1, b"xy"),
    MemcachedReply(b"HD", 5, 1),
    MemcachedReply(b"EN"),
    MemcachedReply(b"NF"),
    MemcachedReply(b"NS"),
    MemcachedReply(b"EX"),
    MemcachedReply(b"ERROR", value=b"SERVER_ERROR object too large for cache"),
    MemcachedReply(b"ERROR", value=b"ERROR"),
    MemcachedReply(b"END", value=b"STAT evictions 3\nSTAT version 1.6.18"),
]


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.gone = True


def _connected() -> tuple[MemcachedConnection, Wire]:
    connection, wire = MemcachedConnection(), Wire()
    connection.connection_made(wire)
    return connection, wire


@given(st.lists(st.integers(0, len(b"".join(LINES))), max_size=20))
def test_replies_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    async def run() -> list[list[MemcachedReply]]:
        connection, _ = _connected()
        futures = [connection.send([b"x"] * count) for count in (1, 3, len(LINES) - 4)]
        stream = b"".join(LINES)
        edges = [0, *sorted(cuts), len(stream)]
        for start, end in itertools.pairwise(edges):
            connection.data_received(stream[start:end])
        return [await future for future in futures]

    first, second, third = asyncio.run(run())
    assert [*first, *second, *third] == REPLIES


async def test_commands_are_sent_at_once_and_in_order() -> None:
    connection, wire = _connected()
    connection.send([b"one\r\n", b"two\r\n"])
    connection.send([b"three\r\n"])
    assert wire.written == b"one\r\ntwo\r\nthree\r\n"


async def test_who_waits_hears_that_the_connection_is_lost() -> None:
    connection, _ = _connected()
    waiting = asyncio.create_task(connection.execute([b"x"]))
    await asyncio.sleep(0)
    connection.connection_lost(None)
    with pytest.raises(Unreachable):
        await waiting
    assert connection.closed
    with pytest.raises(Unreachable):
        await connection.execute([b"x"])


async def test_the_answer_of_one_who_went_away_is_nobody_elses() -> None:
    connection, _ = _connected()
    gone = asyncio.create_task(connection.execute([b"x"]))
    other = asyncio.create_task(connection.execute([b"y"]))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    connection.data_received(b"HD c1\r\nHD c2\r\n")
    assert await other == [MemcachedReply(b"HD", 2)]


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    connection, wire = _connected()
    connection.data_received(b"ERROR\r\n")
    assert wire.gone
    assert connection.closed
