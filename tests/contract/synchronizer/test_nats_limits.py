"""What the NATS backend bounds: what it keeps, what it forgets, what it demands of a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer import changes_after, key, write
from skep.domain.errors import Misconfigured
from skep.processes.servers.nats import NatsServer
from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Epoch, Key, Published, Record, Refusal
from skep.synchronizer.nats import NatsBackend, make
from skep.synchronizer.nats_frames import NatsLife, frame, read_cursor, record_in

real = pytest.mark.needs_part("nats-server")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


@contextlib.asynccontextmanager
async def opened(backend: NatsBackend) -> AsyncIterator[NatsBackend]:
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


async def _removed(backend: NatsBackend, *names: str) -> None:
    """Make records and remove them, then let the server's clock be seen to go on."""
    await backend.publish(tuple(write(name, 0) for name in names))
    await backend.publish(tuple(write(name, 1, b"") for name in names))
    (outcome,) = await backend.publish((write("clock", 0),))
    if isinstance(outcome, Refusal):
        assert outcome.record is not None
        await backend.publish((write("clock", outcome.record.generation),))


@real
async def test_records_removed_long_ago_are_forgotten_and_begin_anew(server: NatsServer) -> None:
    async with opened(NatsBackend(server.url, "skep", keep_removed=0.0)) as backend:
        before = (await backend.snapshot()).cursor
        await _removed(backend, "a", "b")
        await backend.publish((write("b", 2, b"again"),))
        assert await backend.trim() == 1
        assert await backend.trim() == 0
        assert await backend.publish((write("a", 2),)) == (Refusal(None),)
        assert await backend.publish((write("a", 0),)) == (Published(1),)
        assert await backend.publish((write("b", 3),)) == (Published(4),)
        assert await backend.changes(before) == CursorTooOld()


@real
async def test_who_follows_is_told_of_removals_before_they_are_forgotten_and_goes_on(server: NatsServer) -> None:
    async with (
        opened(NatsBackend(server.url, "skep", keep_removed=0.0)) as backend,
        opened(NatsBackend(server.url, "skep")) as reader,
        opened(NatsBackend(server.url, "skep")) as writer,
    ):
        cursor = (await reader.snapshot()).cursor
        cursor = (await changes_after(reader, cursor)).cursor
        await _removed(writer, "a")
        told = await changes_after(reader, cursor)
        assert Record(key=key("a"), generation=2, body=b"") in told.records
        assert await backend.trim() == 1
        await writer.publish((write("b", 0),))
        after = await changes_after(reader, told.cursor)
        assert [record.key.name for record in after.records] == ["b"]
        assert await writer.publish((write("a", 0),)) == (Published(1),)
        assert await reader.epoch() == await writer.epoch()
        assert await reader.changes(cursor) == CursorTooOld()


@real
async def test_records_far_behind_are_moved_up_unchanged(server: NatsServer) -> None:
    async with (
        opened(NatsBackend(server.url, "skep", most_span=100)) as backend,
        opened(NatsBackend(server.url, "skep")) as other,
    ):
        await other.publish(tuple(write(f"n{number}", 0, b"%d" % number) for number in range(5)))
        cursor = (await other.snapshot()).cursor
        for generation in range(200):
            await backend.publish((write("busy", generation),))
        before = await other.snapshot()
        assert await backend.trim() == 0
        after = await other.snapshot()
        assert (after.epoch, set(after.records)) == (before.epoch, set(before.records))
        changes = await other.changes(cursor)
        assert isinstance(changes, Changes)
        assert set(changes.records) <= set(after.records)
        assert await other.publish(tuple(write(f"n{number}", 1) for number in range(5))) == (Published(2),) * 5
        client = await nats.connect(server.url)
        state = (await client.jetstream().stream_info(f"SKEP-skep-{after.epoch}")).state
        await client.close()
        assert state.first_seq > 100


@real
async def test_who_stands_further_back_than_is_kept_reads_it_from_the_server(server: NatsServer) -> None:
    async with opened(NatsBackend(server.url, "skep", keep_changes=3)) as backend:
        cursor = (await backend.snapshot()).cursor
        await changes_after(backend, cursor)
        await backend.publish(tuple(write(f"n{number}", 0) for number in range(20)))
        for wait in (0.0, 5.0):
            changes = await changes_after(backend, cursor, wait=wait)
            assert {record.key.name for record in changes.records} == {f"n{number}" for number in range(20)}
            assert (await changes_after(backend, changes.cursor)).records == ()


@real
@pytest.mark.parametrize(
    ("server_with", "words"),
    [
        ({"jetstream": False}, "JetStream"),
        ({"max_payload": 100_000}, "max_payload"),
        (
            {
                "config": "accounts { small { jetstream { max_memory: 1MB }, users: [{user: u, password: p}] } }\n"
                "no_auth_user: u"
            },
            "expected_hosts",
        ),
    ],
)
async def test_a_server_that_can_never_serve_is_refused(
    tmp_path: Path, server_with: dict[str, bool | int | str], words: str
) -> None:
    async with NatsServer(tmp_path / "nats", **server_with) as server:  # type: ignore[arg-type]  # a table of cases
        settings = SynchronizerSettings(backend="nats", url=server.url, expected_hosts=1000)
        with pytest.raises(Misconfigured, match=words):
            await make(settings).open()


@real
async def test_records_of_another_format_are_refused(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    await client.jetstream().add_stream(name="SKEP-skep", subjects=["skep_sync.skep.epoch"])
    await client.jetstream().publish("skep_sync.skep.epoch", b'{"format":99,"epoch":"x"}')
    await client.close()
    with pytest.raises(Misconfigured, match="format 99"):
        await NatsBackend(server.url, "skep").open()


@real
async def test_clouds_on_one_server_are_apart(server: NatsServer) -> None:
    async with opened(NatsBackend(server.url, "a")) as one, opened(NatsBackend(server.url, "a_b")) as other:
        await one.publish((write("a", 0),))
        await other.begin_epoch(await other.epoch())
        assert len((await one.snapshot()).records) == 1
        assert (await other.snapshot()).records == ()


@pytest.mark.parametrize("url", ["", "http://h", "nats://h?replicas=2", "nats://h?x=1", "nats://h,http://h"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        make(SynchronizerSettings(backend="nats", url=url))


_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(_texts, _texts)
def test_any_key_has_a_subject_of_its_own(namespace: str, name: str) -> None:
    life = NatsLife("skep", Epoch("e"))
    subject = life.record(Key(namespace, name))
    assert life.key(subject) == Key(namespace, name)
    assert subject.isascii()
    assert not set(subject) & set(" *>\t\r\n")
    assert ".." not in subject
    assert not subject.endswith(".")


@given(st.text(max_size=60) | st.text("ab=.6F", max_size=10))
def test_any_subject_is_a_key_of_ours_or_none(text: str) -> None:
    life = NatsLife("skep", Epoch("e"))
    subject = f"{life.subject}.record.{text}"
    found = life.key(subject)
    assert found is None or life.record(found) == subject


@given(st.integers(0, 2**63), st.binary(max_size=50), st.integers(1, 2**63))
def test_a_frame_holds_generation_and_body(generation: int, body: bytes, sequence: int) -> None:
    held = record_in(key("a"), sequence, frame(generation, body))
    assert held == Record(key=key("a"), generation=generation, body=body)


@given(st.text(max_size=30))
def test_any_cursor_is_read_or_refused(text: str) -> None:
    place = read_cursor(Cursor(text))
    assert place is None or place[1] >= 0
