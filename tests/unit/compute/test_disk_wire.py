"""Disks of cold moves on their way from agent to agent, over real connections."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from skep.compute import disk_doors, disk_fetching, disk_wire
from skep.compute.arrivals import Arrivals
from skep.compute.disk_doors import TooManyDoors
from skep.compute.disk_wire import (
    BLOCK,
    DATA,
    END,
    HOLE,
    MANIFEST,
    REFUSED,
    WAIT,
    BrokenWire,
    Pace,
    RunProof,
    receive,
    send,
)
from skep.compute.drivers.base import DriverError
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.disk_doors import DiskDoor, DiskManifest, DiskRequest, OfferedFile
from skep.domain.ids import InstanceUuid
from skep.messages.to_compute import MoveStep
from tests.support.disk_wire import CONTENT, HOLES, MOVE, ONE, ORDER, Asking, Source, Target, late

pytestmark = pytest.mark.usefixtures("soon")

REFUSALS = (OSError, EOFError)
"""How a connection ends that the other side does not want."""


def offered(content: bytes, name: str = "disk") -> OfferedFile:
    return OfferedFile(name=name, size=len(content), digest=hashlib.sha256(content).hexdigest())


def all_in(directory: Path) -> list[Path]:
    return list(directory.rglob("*"))


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


OPENED: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
async def _ends() -> AsyncIterator[None]:
    """Leave no connection of a test."""
    yield
    while OPENED:
        await disk_wire.end(OPENED.pop())


async def through(door: DiskDoor, proof: RunProof | None) -> Streams:
    """Connect to a door; without a proof, without TLS."""
    context = None if proof is None else proof.context(door.certificate, serves=False)
    streams = await asyncio.open_connection(door.address, door.port, ssl=context)
    OPENED.append(streams[1])
    return streams


async def ask(streams: Streams, **what: Any) -> bytes:
    """Say a request and return the kind of the answer."""
    reader, writer = streams
    writer.write(msgspec.json.encode(DiskRequest(**what)) + b"\n")
    async with asyncio.timeout(PATIENCE):
        return (await receive(reader))[0]


async def is_cut(streams: Streams) -> bool:
    """Tell whether the other side ends a connection without a word."""
    reader, _ = streams
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read() == b""
    except (ConnectionError, ssl.SSLError):
        return True


async def test_files_come_whole_and_their_holes_stay_holes(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT, holes=HOLES, empty=b"")
    assert await target.fetch() == {"disk": CONTENT, "holes": HOLES, "empty": b""}
    assert (target.place / "holes").stat().st_blocks * 512 <= 3 * BLOCK
    assert {path.stat().st_mode & 0o777 for path in target.place.iterdir()} == {0o600}
    assert source.doors.number == 0, "the target has said that it has all"
    await target.fetching.leave(MOVE, 2)
    assert not target.place.exists()


async def test_who_has_not_the_token_gets_nothing(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT)
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    assert door.token not in repr(door)
    streams = await through(door, target.proof)
    streams[1].write(msgspec.json.encode(DiskRequest(token="0" * 64, what="manifest")) + b"\n")
    assert await is_cut(streams)


async def test_who_has_not_the_certificate_gets_nothing(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT)
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    with pytest.raises(REFUSALS):
        # With TLS 1.3 a client hears late that it is not believed.
        await ask(await through(door, RunProof("target")), token=door.token, what="manifest")
    plain = await through(door, None)
    plain[1].write(msgspec.json.encode(DiskRequest(token=door.token, what="manifest")) + b"\n")
    assert b"manifest" not in await plain[0].read()


async def test_a_source_with_another_certificate_is_not_believed(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT)
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    forged = msgspec.structs.replace(door, certificate=RunProof("source").certificate)
    with pytest.raises(ssl.SSLError):
        await through(forged, target.proof)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", ".", "disk/", "secret", "disk\0"])
async def test_nothing_but_what_is_offered_is_given(source: Source, target: Target, name: str) -> None:
    source.keep(disk=b"content")
    (source.directory / "secret").write_bytes(b"of the host")
    (source.directory.parent / "secret").write_bytes(b"of the host")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    streams = await through(door, target.proof)
    assert await ask(streams, token=door.token, what="file", name=name) == REFUSED
    assert await ask(streams, token=door.token, what="file", name="disk", offset=8) == REFUSED
    assert await ask(streams, token=door.token, what="manifest") == MANIFEST


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"token": 1}\n', b"x" * 5000, b"\xff\xfe\n"])
async def test_what_is_no_request_ends_the_connection(source: Source, target: Target, line: bytes) -> None:
    source.keep(disk=b"content")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    streams = await through(door, target.proof)
    streams[1].write(line)
    assert await is_cut(streams)


async def test_a_door_takes_few_connections(source: Source, target: Target) -> None:
    source.keep(disk=b"content")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    taken = [await through(door, target.proof) for _ in range(disk_doors.MOST_OF_DOOR)]
    with pytest.raises(REFUSALS):
        await through(door, target.proof)
    assert await ask(taken[0], token=door.token, what="manifest") == MANIFEST


async def test_a_host_has_few_doors(source: Source, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_doors, "MOST_DOORS", 1)
    source.keep(disk=b"content")
    await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    other = MOVE.replace("a001", "a002")
    source.opened.aside = other
    with pytest.raises(TooManyDoors):
        await source.doors.open(ONE, 1, other, target.proof.certificate)


async def test_who_says_nothing_is_not_waited_for(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_doors, "SAYING_SECONDS", 0.05)
    source.keep(disk=b"content")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    plain = await through(door, None)
    assert await is_cut(plain), "it has not begun with TLS"
    assert await is_cut(await through(door, target.proof))


async def test_who_has_asked_is_waited_for_as_long_as_a_door(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.keep(disk=b"content")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    streams = await through(door, target.proof)
    monkeypatch.setattr(disk_doors, "SAYING_SECONDS", 2 * PATIENCE)
    monkeypatch.setattr(disk_doors, "UNUSED_SECONDS", 0.05)
    assert await ask(streams, token=door.token, what="manifest") == MANIFEST
    assert await is_cut(streams)


async def test_who_takes_nothing_is_not_waited_for(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_wire, "SILENT_SECONDS", 0.1)
    source.keep(disk=CONTENT * 16)
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    reader, writer = await through(door, target.proof)
    writer.write(msgspec.json.encode(DiskRequest(token=door.token, what="file", name="disk")) + b"\n")
    came = await reader.readexactly(1)
    cast(asyncio.ReadTransport, writer.transport).pause_reading()

    async def ended() -> bool:
        return not source.doors._doors[MOVE].connections

    await eventually(ended, "the source has ended the connection")
    assert came == DATA


async def test_a_door_ends_with_what_it_is_for(source: Source, target: Target) -> None:
    source.keep(disk=b"content")
    door = await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    streams = await through(door, target.proof)
    source.opened.aside = ""
    assert await is_cut(streams)

    async def is_shut() -> bool:
        return source.doors.number == 0

    await eventually(is_shut, "the door is shut")
    with pytest.raises(REFUSALS):
        await through(door, None)
    with pytest.raises(DriverError, match="is put aside"):
        await source.doors.open(ONE, 1, MOVE, target.proof.certificate)


async def test_a_door_through_which_nobody_comes_is_shut(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_doors, "UNUSED_SECONDS", 0.0)
    source.keep(disk=b"content")
    await source.doors.open(ONE, 1, MOVE, target.proof.certificate)

    async def is_shut() -> bool:
        return source.doors.number == 0

    await eventually(is_shut, "the door is shut")


async def test_a_delete_ends_the_fetching(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT)
    source.doors._pace.take = lambda _number: asyncio.Event().wait()  # type: ignore[method-assign, assignment, return-value]
    fetching = asyncio.create_task(target.fetching.fetch(ORDER))

    async def begun() -> bool:
        return (target.place / "disk").exists()

    await eventually(begun, "the fetching has begun")
    target.fetching.stop(ONE, lambda attempt: attempt == 1)
    await asyncio.sleep(0)
    assert not fetching.done(), "another attempt was meant"
    target.fetching.stop(ONE, lambda attempt: attempt == 2)
    async with asyncio.timeout(PATIENCE):
        assert await fetching is None


async def test_disks_go_no_faster_than_they_may(source: Source, tmp_path: Path) -> None:
    slow = Source(tmp_path / "slow", Pace(8))
    slow.keep(disk=b"a" * (1024 * 1024))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Target(tmp_path / "arrivals", Asking(slow)).fetch()
    took = loop.time() - began
    await slow.doors.close()
    slow.driver.close()
    assert took >= 3 * BLOCK / (8 * 1024 * 1024), "the first block goes at once"


async def test_a_source_that_is_away_is_given_up(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_fetching, "UNHEARD_SECONDS", 0.1)
    source.keep(disk=CONTENT)
    monkeypatch.setattr(source.doors, "_connected", lambda _door, _reader, writer: writer.close())
    with pytest.raises(DriverError) as raised:
        await target.fetch()
    assert raised.value.error == "StorageUnavailable"


async def test_disks_that_cannot_be_read_are_refused_by_name(source: Source, target: Target) -> None:
    source.keep(disk=CONTENT)
    (source.directory / "disk").unlink()
    with pytest.raises(DriverError, match="No such file"):
        await target.fetch()


async def test_disks_that_a_driver_does_not_give_are_refused_by_name(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kept(_instance: InstanceUuid, _attempt: int) -> Mapping[str, Path]:
        raise DriverError("NoSpaceLeft", "there is no room to read a volume out")

    monkeypatch.setattr(source.driver, "kept", kept)
    with pytest.raises(DriverError, match="NoSpaceLeft: there is no room"):
        await target.fetch()


async def test_a_driver_that_is_long_at_work_on_disks_holds_up_nothing(
    source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_doors, "WAIT_SECONDS", 0.01)
    source.keep(disk=CONTENT)
    source.driver.may_give.clear()
    other = MOVE.replace("a001", "a002")
    source.record.open[3] = SimpleNamespace(aside=other)
    for attempt, move in ((1, MOVE), (3, other)):
        async with asyncio.timeout(PATIENCE):
            door = await source.doors.open(ONE, attempt, move, target.proof.certificate)
        assert await ask(await through(door, target.proof), token=door.token, what="manifest") == WAIT
    source.record.open[3].aside = ""

    async def is_shut() -> bool:
        return source.doors.number == 1

    await eventually(is_shut, "the door of a move that is over is shut")
    await source.doors.open(ONE, 1, MOVE, target.proof.certificate)
    source.driver.may_give.set()
    assert await target.fetch() == {"disk": CONTENT}
    assert source.driver.given == [1, 3], "further doors give what the driver was at work on"


class Liar:
    """A source that proves itself and says what it wants."""

    def __init__(self, manifest: DiskManifest | bytes, *frames: tuple[bytes, bytes]) -> None:
        self.proof = RunProof("liar")
        self._manifest = manifest if isinstance(manifest, bytes) else msgspec.json.encode(manifest)
        self._frames = frames
        self._servers: list[asyncio.Server] = []
        self.files = 0

    async def disks(self, _order: MoveStep, certificate: bytes) -> DiskDoor:
        context = self.proof.context(certificate, serves=True)
        server = await asyncio.start_server(self._say, "127.0.0.1", 0, ssl=context)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return DiskDoor(address="127.0.0.1", port=port, token="0" * 64, certificate=self.proof.certificate)

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            what = msgspec.json.decode(line, type=DiskRequest).what
            self.files += what == "file"
            frames = {"manifest": [(MANIFEST, self._manifest)], "file": self._frames}.get(what, [(END, b"")])
            for kind, content in frames:
                await send(writer, kind, content)
        writer.close()

    def close(self) -> None:
        for server in self._servers:
            server.close()


async def lied_to(tmp_path: Path, liar: Liar) -> DriverError:
    target = Target(tmp_path / "arrivals", liar)
    try:
        with pytest.raises(DriverError) as raised:
            await target.fetch()
        return raised.value
    finally:
        liar.close()


class Slow(Liar):
    """A source that is long at work on its first answer, and is cut then."""

    times = 0

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.times += 1
        if self.times > 1:
            await super()._say(reader, writer)
            return
        await late()
        await send(writer, WAIT)
        await writer.drain()
        writer.close()


async def test_a_source_that_is_at_work_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_fetching, "UNHEARD_SECONDS", 0.2)
    slow = Slow(DiskManifest(files=(offered(b"content"),)), (DATA, b"content"), (END, b""))
    assert await Target(tmp_path / "arrivals", slow).fetch() == {"disk": b"content"}
    assert slow.times == 2
    slow.close()


async def test_damaged_bytes_are_fetched_once_more_and_never_taken(tmp_path: Path) -> None:
    liar = Liar(DiskManifest(files=(offered(b"content"),)), (DATA, b"CONTENT"), (END, b""))
    assert "differs from what was offered" in (await lied_to(tmp_path, liar)).message
    assert liar.files == 2


@pytest.mark.parametrize("name", ["../disk", "/disk", "a/b", "", ".", "..", ".hidden", "x" * 300, "a\0b"])
async def test_a_target_writes_nowhere_but_in_its_place(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_fetching, "UNHEARD_SECONDS", 0.0)
    body = {"files": [{"name": name, "size": 7, "digest": hashlib.sha256(b"content").hexdigest()}]}
    await lied_to(tmp_path, Liar(msgspec.json.encode(body), (DATA, b"content"), (END, b"")))
    assert not [path for path in all_in(tmp_path) if path.is_file()]


@pytest.mark.parametrize(
    "frames",
    [
        [(DATA, b"content and more"), (END, b"")],
        [(DATA, b"con"), (END, b"")],
        [(MANIFEST, b"content"), (END, b"")],
        [(b"?", b"content")],
    ],
    ids=["more", "less", "another frame", "no frame"],
)
async def test_what_was_not_offered_is_not_taken(
    tmp_path: Path, frames: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_fetching, "UNHEARD_SECONDS", 0.0)
    said = await lied_to(tmp_path, Liar(DiskManifest(files=(offered(b"content"),)), *frames))
    assert said.error == "StorageUnavailable"
    assert sum(path.stat().st_size for path in all_in(tmp_path) if path.is_file()) <= len(b"content")


async def test_a_disk_without_room_is_said_so(tmp_path: Path) -> None:
    large = msgspec.structs.replace(offered(b"content"), size=2**60, stored=2**60)
    assert (await lied_to(tmp_path, Liar(DiskManifest(files=(large,))))).error == "NoSpaceLeft"


async def test_a_link_that_stands_in_the_place_is_not_followed(source: Source, target: Target) -> None:
    source.keep(disk=b"content")
    target.place.mkdir(parents=True)
    outside = target.place.parent / "outside"
    outside.write_bytes(b"")
    (target.place / "disk").symlink_to(outside)
    assert await target.fetch() == {"disk": b"content"}
    assert outside.read_bytes() == b""


async def test_a_hole_is_no_longer_than_a_frame_says() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(HOLE + (2**32 - 1).to_bytes(4, "big"))
    assert await receive(reader) == (HOLE, b"", 2**32 - 1)
    reader.feed_data(DATA + (BLOCK + 1).to_bytes(4, "big"))
    with pytest.raises(BrokenWire):
        await receive(reader)


def test_what_waits_for_disks_is_kept_at_the_start(tmp_path: Path) -> None:
    arrivals, other = Arrivals(tmp_path / "arrivals"), MOVE.replace("a001", "a002")
    for move, attempt in ((MOVE, 2), (MOVE, 3), (other, 4)):
        arrivals.place(move, attempt).mkdir(parents=True)
    waiting = {number: SimpleNamespace(move=MOVE, received=number == 3) for number in (2, 3)}
    records = {ONE: SimpleNamespace(open=waiting, terminate_up_to=0)}
    arrivals.sweep(cast(Any, records))
    assert list((tmp_path / "arrivals").iterdir()) == [arrivals.place(MOVE, 2)]
    Arrivals(tmp_path / "never").sweep({})


def test_what_is_no_certificate_is_not_believed() -> None:
    proof = RunProof("x" * 300)
    assert isinstance(proof.context(RunProof("other").certificate, serves=True), ssl.SSLContext)
    with pytest.raises(REFUSALS):
        proof.context(b"no certificate", serves=True)
