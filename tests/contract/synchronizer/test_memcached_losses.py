"""What memcached loses is noticed; a server that can never serve is refused; one that is away holds nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.synchronizer import key, patiently, write
from skep.domain.errors import Misconfigured, Unavailable
from skep.processes.servers.memcached import MemcachedServer
from skep.synchronizer.base import CursorTooOld, Epoch, Published, Refusal, Write
from skep.synchronizer.memcached import MemcachedBackend, commands, connection, make
from skep.synchronizer.memcached.capacity import MIB, losses, needed_bytes
from skep.synchronizer.memcached.items import ItemNames, decode_root, digest_of, root_name
from tests.contract.synchronizer.memcached_cloud import MemcachedStore, records

pytestmark = pytest.mark.needs_part("memcached")

LARGE = b"x" * 100_000
SHARDS = 8

ROOM_FOR = 700
"""More such values than the server has room for."""


@pytest.fixture
async def store() -> AsyncIterator[MemcachedStore]:
    async with MemcachedServer(memory_mb=32) as server:
        async with MemcachedStore(server, expected_hosts=1) as store:
            yield store
        server.kill()  # in order it takes a second


async def _names(store: MemcachedStore) -> ItemNames:
    raw = await store.raw()
    (root,) = await raw.execute([commands.get(root_name(store.settings.name))])
    raw.close()
    life = decode_root(root.value)
    return ItemNames(store.settings.name, life.epoch, life.shards)


async def _token_of_root(store: MemcachedStore) -> int:
    raw = await store.raw()
    (root,) = await raw.execute([commands.get(root_name(store.settings.name))])
    raw.close()
    return root.cas


async def _evict(store: MemcachedStore, name: str) -> None:
    """Fill the server with what others store, until it drops the value of a record."""
    value = (await _names(store)).value(digest_of(key(name)))
    raw = await store.raw()
    for number in range(ROOM_FOR):
        await raw.execute([commands.store(b"other%d" % number, LARGE)])
    (found,) = await raw.execute([commands.look(value)])
    raw.close()
    assert found.status == b"EN"


async def _delete(store: MemcachedStore, name: bytes) -> None:
    raw = await store.raw()
    (reply,) = await raw.execute([commands.delete(name)])
    assert reply.status == b"HD"
    raw.close()


async def _is_anew(handle: MemcachedBackend, before: Epoch) -> None:
    assert await handle.epoch() != before
    assert (await handle.snapshot()).records == ()
    assert await handle.publish((write("new", 0),)) == (Published(1),)


async def test_an_evicted_value_is_noticed_by_who_looks(store: MemcachedStore) -> None:
    handle = await store.handle()
    await handle.publish((write("a", 0, LARGE), write("b", 0, LARGE)))
    before = await handle.snapshot()
    await _evict(store, "a")
    await handle.look()
    assert await handle.changes(before.cursor) == CursorTooOld()
    await _is_anew(handle, before.epoch)


async def test_an_evicted_value_is_noticed_by_a_snapshot(store: MemcachedStore) -> None:
    writer = await store.handle()
    await writer.publish((write("a", 0, LARGE), write("b", 0, LARGE)))
    before = await writer.epoch()
    await _evict(store, "b")
    newcomer = await store.handle()
    assert (await newcomer.snapshot()).records == ()
    await _is_anew(newcomer, before)


@pytest.mark.parametrize("knows", [True, False])
async def test_an_evicted_value_is_noticed_by_who_writes_it(store: MemcachedStore, knows: bool) -> None:
    writer = await store.handle()
    await writer.publish((write("a", 0, LARGE),))
    before = await writer.epoch()
    await _evict(store, "a")
    other = writer if knows else await store.handle()
    assert await other.publish((write("a", 1),)) == (Refusal(None),)
    await _is_anew(other, before)


async def test_what_others_lose_costs_nothing(store: MemcachedStore) -> None:
    handle = await store.handle()
    await handle.publish((write("a", 0, b"small"),))
    before = await handle.snapshot()
    raw = await store.raw()
    for number in range(ROOM_FOR):
        await raw.execute([commands.store(b"other%d" % number, LARGE)])
    assert (await raw.statistics())["evictions"] != "0"
    raw.close()
    await handle.look()
    newcomer = await store.handle()
    assert (await newcomer.snapshot()).records == before.records
    assert await newcomer.epoch() == before.epoch


@pytest.mark.parametrize("what", ["index", "head", "root"])
async def test_a_lost_mark_is_another_life(store: MemcachedStore, what: str) -> None:
    handle, other = await store.handle(), await store.handle()
    await handle.publish((write("a", 0),))
    before = await handle.snapshot()
    names = await _names(store)
    raw = await store.raw()
    (root,) = await raw.execute([commands.get(root_name(store.settings.name))])
    raw.close()
    lost = {
        "index": names.shard(names.shard_of(digest_of(key("b")))),
        "head": names.head(decode_root(root.value).writers[0]),
        "root": root_name(store.settings.name),
    }
    await _delete(store, lost[what])
    if what == "head":
        assert await other.changes(before.cursor) == CursorTooOld()
    else:
        assert await other.publish((write("b", 0),)) == (Published(1),)
    assert await handle.changes(before.cursor) == CursorTooOld()
    assert await handle.epoch() == await other.epoch() != before.epoch
    assert await handle.publish((write("a", 1),)) == (Refusal(None),)


async def test_somebody_who_flushes_everything_is_noticed(store: MemcachedStore) -> None:
    handle = await store.handle()
    await handle.publish((write("a", 0),))
    before = await handle.snapshot()
    await asyncio.to_thread(store.server.flush)
    assert await handle.changes(before.cursor) == CursorTooOld()
    await _is_anew(handle, before.epoch)


async def test_garbage_in_a_value_is_another_life(store: MemcachedStore) -> None:
    handle = await store.handle()
    await handle.publish((write("a", 0), write("b", 0)))
    before = await handle.epoch()
    raw = await store.raw()
    await raw.execute([commands.store((await _names(store)).value(digest_of(key("a"))), b"garbage")])
    raw.close()
    assert await records(handle) == {}
    await _is_anew(handle, before)


async def test_another_format_of_the_root_is_left_alone(store: MemcachedStore) -> None:
    raw = await store.raw()
    await raw.execute([commands.store(root_name(store.settings.name), b"garbage")])
    with pytest.raises(Unavailable, match="root"):
        await store.open()
    (root,) = await raw.execute([commands.get(root_name(store.settings.name))])
    raw.close()
    assert root.value == b"garbage"


async def test_killed_in_mid_load_it_begins_anew_and_serves(store: MemcachedStore) -> None:
    writers = [await store.handle() for _ in range(3)]
    before = await writers[0].epoch()

    async def write_on(handle: MemcachedBackend, number: int) -> None:
        for count in range(100):
            await patiently(lambda: handle.publish((write(f"{number}/{count}", 0),)))  # noqa: B023  # awaited at once

    load = asyncio.gather(*(write_on(handle, number) for number, handle in enumerate(writers)))
    await patiently(lambda: writers[0].publish((write("first", 0),)))
    await store.server.restart()
    await load
    assert {await patiently(handle.epoch) for handle in writers} != {before}
    shown = [await records(handle) for handle in writers]
    assert shown[0] == shown[1] == shown[2]


async def _is_away(handle: MemcachedBackend) -> bool:
    try:
        await handle.epoch()
    except Unavailable:
        return True
    return False


async def test_another_root_with_the_same_token_is_another_life(store: MemcachedStore) -> None:
    raw = await store.raw()
    for _ in range(100):  # the token of the root will be one that the next server comes to as well
        await raw.execute([commands.store(b"other", b"")])
    raw.close()
    handle = await store.handle()
    before = await handle.snapshot()
    token = await _token_of_root(store)
    await store.server.restart()
    raw = await store.raw()
    other = store.make()
    for _ in range(token):
        _, reply = await raw.execute([commands.store(b"other", b""), commands.look(b"other")])
        if reply.cas + SHARDS + 2 == token:  # a probe, the index, the root
            break
    raw.close()
    await other.open()
    assert await _token_of_root(store) == token
    assert await patiently(lambda: handle.changes(before.cursor)) == CursorTooOld()
    assert await handle.epoch() == await other.epoch() != before.epoch
    await other.close()


async def test_a_server_that_does_not_answer_holds_nobody(
    store: MemcachedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await store.handle()
    await handle.publish((write("a", 0),))
    cursor = (await handle.snapshot()).cursor
    monkeypatch.setattr(connection, "CALL_SECONDS", 0.1)
    store.server.pause()
    try:
        await eventually(partial(_is_away, handle), "the server has halted")
        with pytest.raises(Unavailable):
            await handle.snapshot()
        with pytest.raises(Unavailable):
            await handle.changes(cursor)
        with pytest.raises(Unavailable):
            await handle.publish((write("a", 1),))
    finally:
        store.server.resume()
    monkeypatch.undo()
    ((outcome),) = await patiently(lambda: handle.publish((write("a", 1),)))
    assert isinstance(outcome, Published | Refusal)
    assert (await records(handle))[key("a")].generation == 2


@pytest.mark.parametrize(
    ("options", "expected_hosts", "words"),
    [
        ((), 10_000, r"limit of 32 MiB; 10000 hosts .* 3072 bytes .* need 54 MiB: -m 54"),
        (("-I", "512k"), 1, r"items up to 524288 bytes; 923\d+ are needed"),
        (("-C",), 1, "without compare-and-swap"),
    ],
)
async def test_a_server_that_can_never_serve_is_refused_with_the_numbers(
    options: tuple[str, ...], expected_hosts: int, words: str
) -> None:
    async with MemcachedServer(memory_mb=32, options=options) as server:
        handle = MemcachedStore(server, expected_hosts=expected_hosts).make()
        with pytest.raises(Misconfigured, match=words):
            await handle.open()
        await handle.close()
        server.kill()


async def test_a_server_that_is_just_large_enough_loses_nothing() -> None:
    hosts, batch = 15_000, 500
    async with MemcachedServer(memory_mb=-(-needed_bytes(hosts) // MIB)) as server:
        async with MemcachedStore(server, expected_hosts=hosts) as store:
            handle = await store.handle()
            for generation in range(3):
                for namespace, body in (("compute", b"x" * (1200 + 30 * generation)), ("operator", b"y" * 300)):
                    for first in range(0, hosts, batch):
                        keys = [key(f"{number:036}", namespace) for number in range(first, first + batch)]
                        writes = tuple(Write(key=one, expected=generation, body=body) for one in keys)
                        assert set(await handle.publish(writes)) == {Published(generation + 1)}
            assert len((await handle.snapshot()).records) == 2 * hosts
            raw = await store.raw()
            statistics = await raw.statistics()
            raw.close()
        server.kill()
    assert losses(statistics) == 0


async def test_opening_may_be_tried_again_while_the_server_is_away(store: MemcachedStore) -> None:
    store.server.kill()
    handle = make(store.settings)
    with pytest.raises(Unavailable):
        await handle.open()
    await store.server.start()
    await handle.open()
    assert await handle.publish((write("a", 0),)) == (Published(1),)
    await handle.close()
