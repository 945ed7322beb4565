"""What happens to the NATS backend when its server, its connection or its streams are hurt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.synchronizer import changes_after, key, patiently, write
from skep.domain.errors import Unavailable
from skep.http.closing import stop_accepting
from skep.processes.servers.nats import NatsServer
from skep.synchronizer import nats_link
from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Epoch, Key, Published, Record, Refusal, Snapshot
from skep.synchronizer.nats import NatsBackend
from skep.synchronizer.nats_consumer import Consumer

pytestmark = pytest.mark.needs_part("nats-server")

Open = Callable[..., Awaitable[NatsBackend]]


@pytest.fixture(autouse=True)
def _nobody_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own question whether the server lives would heal, late, what was not noticed otherwise."""
    monkeypatch.setattr(nats_link, "PING_SECONDS", 1000)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def handle(server: NatsServer) -> AsyncIterator[Open]:
    """Return a way to open handles, which are closed at the end."""
    handles: list[NatsBackend] = []

    async def open_handle(url: str | None = None, *, call_seconds: float = 5.0) -> NatsBackend:
        backend = NatsBackend(url or server.url, "skep", call_seconds=call_seconds)
        handles.append(backend)
        await backend.open()
        return backend

    yield open_handle
    for backend in handles:
        await backend.close()


@contextlib.asynccontextmanager
async def administrator(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    """Somebody else with access to the server."""
    client = await nats.connect(server.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


class Cable:
    """A way to the server that can be cut, or fall silent with its connections open."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Cable:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_accepting(self._listener)
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def silence(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open.is_set():
            writer.close()
            return
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self._server.port)
        except BaseException:
            writer.close()
            raise
        self._writers |= {writer, here}
        for source, sink in ((reader, here), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


async def _write_on(backend: NatsBackend, name: str, stop: asyncio.Event, taken: dict[tuple[Epoch, Key], int]) -> None:
    """Raise one record again and again; remember the highest generation that was acknowledged in each epoch."""
    expected = 0
    while not stop.is_set():
        try:
            epoch = await backend.epoch()
            (outcome,) = await backend.publish((write(name, expected, b"%d" % expected),))
            if await backend.epoch() != epoch:
                continue  # which of both it was taken in is not known
        except Unavailable:
            await asyncio.sleep(0)
            continue
        if isinstance(outcome, Published):
            expected = outcome.generation
            taken[epoch, key(name)] = expected
        else:
            expected = outcome.record.generation if outcome.record else 0


class Follower:
    """Somebody who follows the changes, and begins anew with a snapshot when told so."""

    def __init__(self, backend: NatsBackend, snapshot: Snapshot) -> None:
        self._backend = backend
        self._take(snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        self.epoch = snapshot.epoch
        self.cursor = snapshot.cursor
        self.known: dict[Key, Record] = {record.key: record for record in snapshot.records}

    async def follow(self) -> None:
        while True:
            changes = await patiently(lambda: self._backend.changes(self.cursor, wait=1.0))
            if isinstance(changes, CursorTooOld):
                self._take(await patiently(self._backend.snapshot))
                continue
            for record in changes.records:
                held = self.known.get(record.key)
                assert held is None or record.generation >= held.generation
                self.known[record.key] = record
            self.cursor = changes.cursor


async def _under_load(
    writers: list[NatsBackend],
    readers: list[NatsBackend],
    trouble: Callable[[Callable[[int], Awaitable[object]]], Awaitable[None]],
) -> None:
    """Let writers write and readers follow while there is trouble; at the end nothing acknowledged is missing."""
    stop = asyncio.Event()
    taken: dict[tuple[Epoch, Key], int] = {}
    names = [f"n{number}" for number in range(4)]
    writing = [
        asyncio.create_task(_write_on(writers[number % len(writers)], name, stop, taken))
        for number, name in enumerate(names)
    ]
    followers = [Follower(reader, await reader.snapshot()) for reader in readers]
    following = [asyncio.create_task(follower.follow()) for follower in followers]

    async def progress(count: int) -> bool:
        """Wait until every reader has seen so many more generations of every record."""
        # Generations begin anew with each epoch, which readers and writers come to in any order.
        marks, before = dict(taken), {follower.epoch for follower in followers}

        def has_come(follower: Follower, name: Key) -> bool:
            held = follower.known.get(name)
            mark = marks.get((follower.epoch, name), 0) + count if follower.epoch in before else 0
            return held is not None and held.generation >= mark

        async def came() -> bool:
            return all(has_come(follower, key(name)) for follower in followers for name in names)

        return await eventually(came, "readers see what writers write")

    await progress(10)
    await trouble(progress)
    stop.set()
    await asyncio.gather(*writing)
    truth = await readers[0].snapshot()
    held = {record.key: record.generation for record in truth.records}
    for (epoch, name), generation in taken.items():
        assert epoch != truth.epoch or held[name] >= generation

    async def all_know() -> bool:
        return all(
            follower.epoch == truth.epoch and set(follower.known.values()) == set(truth.records)
            for follower in followers
        )

    await eventually(all_know, "readers know the truth")
    for task in following:
        assert not task.done()
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)


async def test_a_server_killed_under_load_is_another_epoch_and_loses_nothing_silently(
    server: NatsServer, handle: Open
) -> None:
    before = await (await handle()).epoch()

    async def kill(progress: Callable[[int], Awaitable[object]]) -> None:
        for _ in range(3):
            await server.restart()
            await progress(10)

    readers = [await handle(), await handle()]
    await _under_load([await handle(), await handle()], readers, kill)
    assert await readers[0].epoch() != before


async def test_a_connection_cut_under_load_keeps_the_epoch_and_readers_go_on_at_once(
    server: NatsServer, handle: Open
) -> None:
    async with Cable(server) as cable:

        async def cut(progress: Callable[[int], Awaitable[object]]) -> None:
            for _ in range(3):
                cable.cut()
                await progress(10)

        readers = [await handle(cable.url), await handle(cable.url)]
        before = await readers[0].epoch()
        await _under_load([await handle(cable.url), await handle()], readers, cut)
        assert await readers[0].epoch() == before


async def test_a_connection_that_falls_silent_is_given_up(server: NatsServer, handle: Open) -> None:
    async with Cable(server) as cable:
        backend, other = await handle(cable.url, call_seconds=2.0), await handle()
        snapshot = await backend.snapshot()
        await changes_after(backend, snapshot.cursor)
        cable.silence()
        for operation in (backend.epoch, backend.snapshot, lambda: backend.publish((write("a", 0),))):
            with pytest.raises(Unavailable):
                await operation()
        await other.publish((write("b", 0),))
        cable.heal()
        changes = await patiently(lambda: backend.changes(snapshot.cursor, wait=PATIENCE))
        assert isinstance(changes, Changes)
        assert key("b") in {record.key for record in changes.records}


async def test_a_client_that_reads_no_more_without_a_word_is_given_up(server: NatsServer, handle: Open) -> None:
    """As where the server is killed while much is written; no other way to notice it is left here."""
    backend, other = await handle(call_seconds=1000.0), await handle()
    snapshot = await backend.snapshot()
    await changes_after(backend, snapshot.cursor)
    link = backend._session._link
    assert link is not None
    reading = link._client._reading_task
    assert reading is not None
    reading.cancel()
    await other.publish((write("a", 0),))
    changes = await patiently(lambda: backend.changes(snapshot.cursor, wait=PATIENCE))
    assert isinstance(changes, Changes)
    assert [record.key for record in changes.records] == [key("a")]


async def test_a_halted_server_makes_calls_unavailable_and_serves_when_it_goes_on(
    server: NatsServer, handle: Open
) -> None:
    backend = await handle(call_seconds=2.0)
    await backend.publish((write("a", 0),))
    snapshot = await backend.snapshot()
    server.pause()
    calls = [
        asyncio.create_task(backend.publish(tuple(write(f"{number}/{one}", 0, b"x" * 100_000) for one in range(20))))
        for number in range(50)
    ]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    for operation in (
        backend.epoch,
        backend.snapshot,
        backend.trim,
        lambda: backend.changes(snapshot.cursor),
        lambda: backend.changes(snapshot.cursor, wait=0.1),
        lambda: backend.begin_epoch(snapshot.epoch),
    ):
        with pytest.raises(Unavailable):
            await operation()
    server.resume()
    assert await patiently(backend.epoch) == snapshot.epoch
    assert await patiently(lambda: backend.publish((write("a", 1),))) == (Published(2),)


async def test_a_handle_opens_when_the_server_is_there_again(server: NatsServer, handle: Open) -> None:
    server.kill()
    backend = NatsBackend(server.url, "skep")
    with pytest.raises(Unavailable):
        await backend.open()
    await server.start()
    await backend.open()
    assert (await backend.snapshot()).records == ()
    await backend.close()


async def _delete_records(js: JetStreamContext, epoch: Epoch) -> None:
    await js.delete_stream(f"SKEP-skep-{epoch}")


async def _delete_name(js: JetStreamContext, _epoch: Epoch) -> None:
    await js.delete_stream("SKEP-skep")


async def _overwrite_name(js: JetStreamContext, _epoch: Epoch) -> None:
    await js.publish("skep_sync.skep.epoch", b"garbage")


async def _purge_records(js: JetStreamContext, epoch: Epoch) -> None:
    await js.purge_stream(f"SKEP-skep-{epoch}")


@pytest.mark.parametrize("hurt", [_delete_records, _delete_name, _overwrite_name, _purge_records])
async def test_streams_that_are_hurt_are_another_epoch_for_every_handle(
    server: NatsServer, handle: Open, hurt: Callable[[JetStreamContext, Epoch], Awaitable[None]]
) -> None:
    writer, reader, waiting = await handle(), await handle(), await handle()
    await writer.publish((write("a", 0), write("b", 0)))
    before = await reader.snapshot()
    waiter = asyncio.create_task(waiting.changes(before.cursor, wait=PATIENCE))
    async with administrator(server) as js:
        await hurt(js, before.epoch)
    epoch = await patiently(reader.epoch)
    assert epoch != before.epoch
    assert await waiter == CursorTooOld()
    for backend in (writer, reader, waiting):
        assert await patiently(backend.epoch) == epoch
        assert await backend.changes(before.cursor) == CursorTooOld()
    assert await writer.publish((write("a", 1), write("b", 0))) == (Refusal(None), Published(1))
    async with administrator(server) as js:
        streams = {stream.config.name for stream in await js.streams_info()}
    assert streams == {"SKEP-skep", f"SKEP-skep-{epoch}"}


async def test_a_stream_made_anew_under_its_old_name_is_another_epoch(server: NatsServer, handle: Open) -> None:
    async with Cable(server) as cable:
        backend = await handle(cable.url)
        await backend.publish((write("a", 0),))
        before = await backend.snapshot()
        cable.silence()
        cable.cut()
        async with administrator(server) as js:
            stream = f"SKEP-skep-{before.epoch}"
            config = (await js.stream_info(stream)).config
            await js.delete_stream(stream)
            await js.add_stream(StreamConfig(name=stream, subjects=config.subjects))
        cable.heal()
        assert await patiently(lambda: backend.publish((write("a", 1), write("b", 0)))) == (Refusal(None), Published(1))
        assert await backend.epoch() != before.epoch


async def test_a_writer_that_meets_a_purged_stream_is_told_nothing_false(server: NatsServer, handle: Open) -> None:
    """Whoever writes before anybody has looked is refused, or learns later that it was for nothing."""
    writer = await handle()
    await writer.publish(tuple(write(f"n{number}", 0) for number in range(10)))
    before = await writer.epoch()
    async with administrator(server) as js:
        await _purge_records(js, before)
        with contextlib.suppress(Unavailable):
            await writer.publish((write("n0", 1), write("new", 0)))
    assert await patiently(writer.epoch) != before


async def test_one_record_taken_away_is_another_epoch_when_it_is_missed(server: NatsServer, handle: Open) -> None:
    backend = await handle()
    await backend.publish((write("a", 0), write("b", 0)))
    before = await backend.epoch()
    async with administrator(server) as js:
        await js.purge_stream(f"SKEP-skep-{before}", subject=f"skep_sync.skep.life.{before}.record.compute.a")
    with pytest.raises(Unavailable):
        await backend.publish((write("a", 1),))
    assert await backend.epoch() != before
    assert (await backend.snapshot()).records == ()


async def test_what_others_write_under_a_record_is_told_as_it_is_and_can_be_overwritten(
    server: NatsServer, handle: Open
) -> None:
    backend, other = await handle(), await handle()
    await backend.publish((write("a", 0), write("b", 0)))
    snapshot = await backend.snapshot()
    subject = f"skep_sync.skep.life.{snapshot.epoch}"
    async with administrator(server) as js:
        stored = await js.publish(f"{subject}.record.compute.a", b"garbage")
        await js.publish(f"{subject}.record.compute", b"no key")
        await js.publish(f"{subject}.record.com=FFpute.a", b"no text")
        await js.publish(f"{subject}.else", b"nothing of ours")
    garbage = Record(key=key("a"), generation=stored.seq, body=b"garbage")
    assert (await changes_after(backend, snapshot.cursor)).records == (garbage,)
    assert set((await other.snapshot()).records) == {garbage, Record(key=key("b"), generation=1, body=b"x")}
    assert await backend.publish((write("a", 1),)) == (Refusal(garbage),)
    assert await other.publish((write("a", stored.seq, b"good"),)) == (Published(stored.seq + 1),)
    assert await backend.epoch() == snapshot.epoch


async def test_what_crashes_left_behind_is_removed_with_the_next_epoch(server: NatsServer, handle: Open) -> None:
    backend = await handle()
    async with administrator(server) as js:
        await js.add_stream(name="SKEP-skep-stray", subjects=["skep_sync.skep.life.stray.>"])
        await js.publish("skep_sync.skep.life.stray.begun")
        await js.add_stream(name="SKEP-other-stray", subjects=["skep_sync.other.life.stray.>"])
        epoch = await backend.begin_epoch(await backend.epoch())
        streams = {stream.config.name for stream in await js.streams_info()}
    assert streams == {"SKEP-skep", f"SKEP-skep-{epoch}", "SKEP-other-stray"}


async def test_a_cursor_of_what_never_was_is_too_old(handle: Open) -> None:
    backend = await handle()
    epoch = await backend.epoch()
    for wait in (0.0, 0.1):
        assert await backend.changes(Cursor(f"{epoch}/999"), wait=wait) == CursorTooOld()


async def test_a_snapshot_ends_while_somebody_writes_and_the_server_counts_what_was_overwritten(
    handle: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await handle(), await handle()
    await writer.publish((write("still", 0),))
    real = Consumer._take

    async def take(consumer: Consumer, message: Msg) -> None:
        if message.reply.startswith("$JS.ACK."):
            others, _, pending = message.reply.rpartition(".")
            message.reply = f"{others}.{int(pending) + 1}"
        await real(consumer, message)

    monkeypatch.setattr(Consumer, "_take", take)
    stop = asyncio.Event()
    writing = asyncio.create_task(_write_on(writer, "busy", stop, {}))
    try:
        async with asyncio.timeout(PATIENCE):
            snapshot = await reader.snapshot()
    finally:
        stop.set()
        await writing
    assert key("still") in {record.key for record in snapshot.records}
