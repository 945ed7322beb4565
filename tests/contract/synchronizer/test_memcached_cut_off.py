"""Whoever writes to memcached may be killed between any two commands: nothing stays hidden for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from skep.contracts.synchronizer import key, write
from skep.domain.errors import Unavailable
from skep.processes.servers.memcached import MemcachedServer
from skep.synchronizer.base import KEEP_REMOVED_SECONDS, Changes, Published, Refusal
from skep.synchronizer.memcached import commands
from skep.synchronizer.memcached.healing import CUT_OFF_SECONDS
from skep.synchronizer.memcached.items import ItemNames, Root, decode_root, root_name
from skep.synchronizer.memcached.logs import KEEP_ENDED
from skep.synchronizer.memcached.trimming import SILENT_SECONDS
from tests.contract.synchronizer.memcached_cloud import Follower, Fuse, MemcachedStore, Time, open_handle, records

pytestmark = pytest.mark.needs_part("memcached")

SHARDS = 8
COMMANDS = 7
"""Of the pipeline below: entry, index, three values, head, root."""


TRIMMING = 24
"""More commands than it takes to forget one record."""


@pytest.fixture(scope="module")
def server() -> Iterator[MemcachedServer]:
    server = MemcachedServer(memory_mb=64)
    asyncio.run(server.start())
    yield server
    server.stop()


@pytest.fixture
async def store(server: MemcachedServer) -> AsyncIterator[MemcachedStore]:
    async with MemcachedStore(server) as store:
        yield store


async def _kill_in_the_middle(store: MemcachedStore, after: int) -> Follower:
    """Have a writer change, make and remove records, killed after so many commands; return who followed."""
    fuse = Fuse()
    killed = await open_handle(store, fuse=fuse)
    await killed.publish((write("changed", 0), write("removed", 0)))
    follower = Follower(await store.handle())
    await follower.begin()
    fuse.left = after
    batch = (write("changed", 1, b"anew"), write("made", 0), write("removed", 1, b""))
    if after < COMMANDS:
        with pytest.raises(Unavailable):
            await killed.publish(batch)
    else:
        await killed.publish(batch)
    return follower


async def _root(store: MemcachedStore) -> Root:
    raw = await store.raw()
    (root,) = await raw.execute([commands.get(root_name(store.settings.name))])
    raw.close()
    return decode_root(root.value)


async def _followed(store: MemcachedStore) -> tuple[str, ...]:
    return (await _root(store)).writers


@pytest.mark.parametrize("after", range(COMMANDS + 1))
async def test_what_a_killed_writer_did_is_told(store: MemcachedStore, after: int) -> None:
    follower = await _kill_in_the_middle(store, after)
    await follower.handle.look()
    await follower.handle.look()
    truth = await records(await store.open())
    assert await follower.read() == truth
    if after >= 3:
        assert truth[key("changed")].generation == 2


@pytest.mark.parametrize("after", range(1, COMMANDS))
async def test_what_no_log_tells_is_found_by_walking(store: MemcachedStore, after: int) -> None:
    follower = await _kill_in_the_middle(store, after)
    raw = await store.raw()
    life = await _root(store)
    names = ItemNames(store.settings.name, life.epoch, life.shards)
    await raw.execute([commands.delete(names.entry(writer, number)) for writer in life.writers for number in range(5)])
    raw.close()
    for _ in range(2 * SHARDS):
        await follower.handle.look()
    if after == COMMANDS - 1:  # the head names an entry that is gone: begin anew
        assert not isinstance(await follower.handle.changes(follower.cursor), Changes)
        await follower.begin()
    assert await follower.read() == await records(await store.open())


@pytest.mark.parametrize("after", range(8))
async def test_a_writer_killed_while_it_begins_its_log_holds_nobody_up(store: MemcachedStore, after: int) -> None:
    follower = Follower(await store.handle())
    await follower.begin()
    fuse = Fuse()
    killed = await open_handle(store, fuse=fuse)
    fuse.left = after
    with pytest.raises(Unavailable):
        await killed.publish((write("a", 0),))
    await follower.handle.look()
    await follower.handle.look()
    assert await follower.read() == await records(await store.open())
    (outcome,) = await (await store.open()).publish((write("a", 0, b"other"),))
    assert outcome in {Published(1), Refusal((await follower.read()).get(key("a")))}


async def test_a_writer_whose_log_was_ended_begins_another(store: MemcachedStore) -> None:
    time = Time()
    trimming = Follower(await open_handle(store, time=time))
    slow = await store.open()
    await slow.publish((write("a", 0),))
    await trimming.begin()
    assert await trimming.handle.trim() == 0
    time.seconds += SILENT_SECONDS
    assert await trimming.handle.trim() == 1
    assert set(await trimming.read()) == {key("a")}
    await slow.publish((write("b", 0),))
    assert set(await trimming.read()) == {key("a"), key("b")}


async def test_the_log_of_a_writer_that_was_cut_off_is_soon_no_longer_followed(store: MemcachedStore) -> None:
    await _kill_in_the_middle(store, COMMANDS - 2)
    time = Time()
    looking = Follower(await open_handle(store, time=time))
    await looking.begin()
    await looking.handle.look()
    assert len(await _followed(store)) == 1
    time.seconds += CUT_OFF_SECONDS
    await looking.handle.look()
    assert len(await _followed(store)) == 1  # its own, in which it told what was left
    assert await looking.read() == await records(await store.open())


async def test_what_a_silent_writer_left_untold_is_told_before_its_log_ends(store: MemcachedStore) -> None:
    time = Time()
    follower = await _kill_in_the_middle(store, COMMANDS - 2)
    trimming = await open_handle(store, time=time)
    await trimming.trim()
    time.seconds += SILENT_SECONDS
    assert await trimming.trim() >= 1
    assert await follower.read() == await records(await store.open())


async def test_logs_that_ended_are_read_to_their_ends(store: MemcachedStore) -> None:
    followers = [Follower(await store.handle()) for _ in range(3)]
    await followers[0].begin()
    writer, guest = await store.open(), await store.open()
    await writer.publish((write("a", 0),))
    await followers[1].begin()
    await writer.publish((write("b", 0),))
    await followers[2].begin()
    await writer.close()
    await guest.publish((write("guest", 0),))
    await guest.close()
    for follower in followers:
        assert set(await follower.read()) == {key("a"), key("b"), key("guest")}


async def test_who_missed_more_ends_than_are_kept_begins_anew(store: MemcachedStore) -> None:
    follower, other = Follower(await store.handle()), Follower(await store.handle())
    await follower.begin()
    for number in range(KEEP_ENDED + 1):
        guest = await store.open()
        await guest.publish((write(f"guest{number}", 0),))
        if number == 1:
            await other.begin()
        await guest.close()
    assert len(await other.read()) == KEEP_ENDED + 1
    assert not isinstance(await follower.handle.changes(follower.cursor), Changes)


async def test_records_removed_long_ago_are_forgotten(store: MemcachedStore) -> None:
    time = Time()
    handle = await open_handle(store, time=time)
    await handle.publish((write("a", 0), write("b", 0)))
    await handle.publish((write("a", 1, b""),))
    await (await store.open()).snapshot()
    assert await handle.trim() == 0
    time.seconds += KEEP_REMOVED_SECONDS + 1
    assert await handle.trim() == 1
    assert await handle.trim() == 0
    epoch = await handle.epoch()
    other = await store.open()
    assert await other.publish((write("a", 2),)) == (Refusal(None),)
    assert await other.publish((write("a", 0),)) == (Published(1),)
    assert set(await records(handle)) == {key("a"), key("b")}
    assert await handle.epoch() == epoch


@pytest.mark.parametrize("after", range(TRIMMING + 1))
async def test_who_is_killed_while_forgetting_hides_no_new_record(store: MemcachedStore, after: int) -> None:
    time, fuse = Time(), Fuse()
    handle = await open_handle(store, time=time, fuse=fuse)
    await handle.publish((write("a", 0),))
    await handle.publish((write("a", 1, b""),))
    time.seconds += KEEP_REMOVED_SECONDS + 1
    fuse.left = after
    try:
        forgotten = await handle.trim()
    except Unavailable:
        forgotten = 0
    fuse.left = None
    epoch = await handle.epoch()
    writer = await store.open()
    (outcome,) = await writer.publish((write("a", 0, b"new"),))
    if isinstance(outcome, Refusal):
        assert not forgotten
        assert outcome.record is not None
        assert not outcome.record.body
        await writer.publish((write("a", outcome.record.generation, b"new"),))
    assert [record.body for record in (await records(await store.open())).values()] == [b"new"]
    await handle.trim()
    assert [record.body for record in (await records(await store.open())).values()] == [b"new"]
    assert await writer.epoch() == epoch


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("after", range(TRIMMING + 1))
async def test_who_forgets_slowly_hides_no_new_record(store: MemcachedStore, after: int, knows: bool) -> None:
    time, fuse = Time(), Fuse()
    handle = await open_handle(store, time=time, fuse=fuse)
    writer = await open_handle(store, time=time)
    await writer.publish((write("a", 0),))
    await writer.publish((write("a", 1, b""),))
    epoch = await handle.epoch()
    time.seconds += KEEP_REMOVED_SECONDS + 1
    anew = writer if knows else await store.open()

    async def write_anew() -> None:
        (outcome,) = await anew.publish((write("a", 2, b"new"),))
        if outcome == Refusal(None):
            (outcome,) = await anew.publish((write("a", 0, b"new"),))
        assert isinstance(outcome, Published)

    fuse.left, fuse.meanwhile = after, write_anew
    await handle.trim()
    pending, fuse.left, fuse.meanwhile = fuse.meanwhile, None, None
    if pending is not None:
        await pending()
    assert [record.body for record in (await records(await store.open())).values()] == [b"new"]
    assert await handle.epoch() == epoch


@pytest.mark.parametrize("after", range(8))
async def test_who_writes_slowly_is_not_forgotten_meanwhile(store: MemcachedStore, after: int) -> None:
    time, fuse = Time(), Fuse()
    trimming = await open_handle(store, time=time)
    await trimming.publish((write("a", 0),))
    await trimming.publish((write("a", 1, b""),))
    slow = await open_handle(store, fuse=fuse)
    await slow.publish((write("other", 0),))

    async def forget() -> None:
        time.seconds += KEEP_REMOVED_SECONDS + 1
        await trimming.trim()

    fuse.left, fuse.meanwhile = after, forget
    (outcome,) = await slow.publish((write("a", 0, b"new"),))
    fuse.left = fuse.meanwhile = None
    if isinstance(outcome, Refusal):
        assert outcome.record is not None
        await slow.publish((write("a", outcome.record.generation, b"new"),))
    assert (await records(await store.open()))[key("a")].body == b"new"


async def test_keys_listed_twice_or_for_nothing_are_put_in_order(store: MemcachedStore) -> None:
    time = Time()
    handle = await open_handle(store, time=time)
    fuse = Fuse()
    killed = await open_handle(store, fuse=fuse)
    await killed.publish((write("a", 0),))
    fuse.left = 2
    with pytest.raises(Unavailable):
        await killed.publish((write("never written", 0),))
    await (await store.open()).publish((write("a", 0),))  # refused, but listed once more
    assert await handle.trim() == 0
    epoch = await handle.epoch()
    time.seconds += KEEP_REMOVED_SECONDS + 1
    assert await handle.trim() >= 1
    assert set(await records(await store.open())) == {key("a")}
    assert await (await store.open()).publish((write("never written", 0),)) == (Published(1),)
    assert await handle.epoch() == epoch
