"""The target of a cold move fetches the disks that the source gives away, as far as they are not there.

What cuts the connection, either agent included, costs no byte that has arrived: the target asks for another door and
goes on. It gives up after a while in which nothing came. While it reads or stores what it has, which may take minutes,
it wants nothing of a connection: a source waits for the next request for two minutes, one of before 0.12.0 for five
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import structlog

from skep.compute.arrivals import Arrivals, ArrivingFile, ArrivingFiles
from skep.compute.disk_wire import (
    DATA,
    END,
    HOLE,
    MANIFEST,
    REFUSED,
    SAYING_SECONDS,
    WAIT,
    BrokenWire,
    RunProof,
    check_peer,
    end,
    receive,
)
from skep.compute.drivers.base import DriverError
from skep.compute.upcalls import Upcalls
from skep.domain.decoding import json_decoder
from skep.domain.disk_doors import DiskDoor, DiskManifest, DiskRequest, OfferedFile
from skep.domain.ids import InstanceUuid
from skep.messages.to_compute import MoveStep

log = structlog.get_logger("skep.compute")

UNHEARD_SECONDS = 120.0
"""After which a target gives up to which no byte came, its own work not counted."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""Seconds before a target tries again; doubled from one time to the next as long as nothing comes."""

_manifest = json_decoder(DiskManifest)


class DiskFetching:
    """All that one host fetches."""

    def __init__(self, upcalls: Upcalls, proof: RunProof, arrivals: Arrivals) -> None:
        self._upcalls = upcalls
        self._proof = proof
        self._arrivals = arrivals
        self._under_way: dict[InstanceUuid, tuple[int, asyncio.Task[dict[str, Path]]]] = {}

    async def fetch(self, order: MoveStep) -> Mapping[str, Path] | None:
        """Return the files of a move, all there and checked; None when their server was stopped meanwhile.

        Raises DriverError when they are not to be had or cannot be kept.
        """
        task = asyncio.create_task(self._fetch(order), name=f"fetch {order.move}")
        self._under_way[order.instance.uuid] = (order.attempt, task)
        try:
            await asyncio.wait([task])
        finally:
            del self._under_way[order.instance.uuid]
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    def stop(self, instance: InstanceUuid, doomed: Callable[[int], bool]) -> None:
        """End what is fetched for an attempt that is to be undone."""
        attempt, task = self._under_way.get(instance, (0, None))
        if task is not None and doomed(attempt):
            task.cancel()

    async def leave(self, move: str, attempt: int) -> None:
        """Remove what came for an attempt; nothing is no error."""
        await self._arrivals.leave(move, attempt)

    async def _fetch(self, order: MoveStep) -> dict[str, Path]:
        files = ArrivingFiles()
        try:
            return await self._fetch_into(files, order)
        finally:
            await files.close()

    async def _fetch_into(self, files: ArrivingFiles, order: MoveStep) -> dict[str, Path]:
        loop = asyncio.get_running_loop()
        heard, pause, door = loop.time(), FIRST_PAUSE, None
        came = 0

        def waited() -> None:
            nonlocal heard
            heard = loop.time()

        while True:
            last = came

            def count(number: int) -> None:
                nonlocal came
                came += number

            try:
                async with asyncio.timeout(UNHEARD_SECONDS):
                    door = door or await self._upcalls.disks(order, self._proof.certificate)
                async with _through(door, self._proof, waited) as line:
                    manifest = await line.manifest()
                    place = await self._arrivals.make(order.move, order.attempt, manifest)
                    if not await files.take_up(place, manifest):
                        return await _take_all(line, files, count)
                # Reading may have been too long for the source: the files come through another connection.
                waited()
                continue
            except (OSError, TimeoutError, EOFError, msgspec.DecodeError) as error:
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if came > last:
                heard, pause = loop.time(), FIRST_PAUSE
            else:
                # Whoever is there no more may be back, elsewhere.
                door = None
            if loop.time() - heard > UNHEARD_SECONDS:
                raise DriverError("StorageUnavailable", f"the disks do not come from their host: {why}")
            log.info("disks not received, asked for again", move=order.move, received=came, error=why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class _Line:
    """A connection through a door."""

    def __init__(
        self,
        door: DiskDoor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waited: Callable[[], None],
    ) -> None:
        """`waited` is told when the source says that it is at work on its answer."""
        self._door = door
        self._reader = reader
        self._writer = writer
        self._waited = waited

    async def manifest(self) -> DiskManifest:
        """Return what is offered. Raises DriverError where that cannot be, and what a cut raises."""
        self._ask(DiskRequest(token=self._door.token, what="manifest"))
        kind, content, _ = await self._answer()
        if kind != MANIFEST:
            raise BrokenWire(f"a frame of kind {kind!r} is no manifest")
        found = _manifest.decode(content)
        if len({one.name for one in found.files}) != len(found.files):
            raise BrokenWire("a file is offered twice")
        return found

    async def pieces(self, offered: OfferedFile, offset: int) -> AsyncIterator[bytes | int]:
        """Give the bytes of a file from an offset on, of a hole its length."""
        self._ask(DiskRequest(token=self._door.token, what="file", name=offered.name, offset=offset))
        while True:
            kind, content, length = await self._answer()
            offset += length if kind in (DATA, HOLE) else 0
            if kind not in (DATA, HOLE, END) or offset > offered.size or (kind == END and offset < offered.size):
                raise BrokenWire(f"{offered.name} comes with {offset} bytes instead of {offered.size}")
            if kind == END:
                return
            yield content if kind == DATA else length

    async def end(self) -> None:
        """Say that all is there, and wait until the source ends the connection, for its door is shut then.

        A source that does not hear it shuts its door all the same, later.
        """
        self._ask(DiskRequest(token=self._door.token, what="end"))
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            await receive(self._reader)

    def _ask(self, request: DiskRequest) -> None:
        self._writer.write(msgspec.json.encode(request) + b"\n")

    async def _answer(self) -> tuple[bytes, bytes, int]:
        while (frame := await receive(self._reader))[0] == WAIT:
            self._waited()
        if frame[0] == REFUSED:
            raise DriverError("StorageUnavailable", f"the source gives no disks: {frame[1].decode(errors='replace')}")
        return frame


@asynccontextmanager
async def _through(door: DiskDoor, proof: RunProof, waited: Callable[[], None]) -> AsyncIterator[_Line]:
    context = proof.context(door.certificate, serves=False)
    async with asyncio.timeout(SAYING_SECONDS):
        reader, writer = await asyncio.open_connection(door.address, door.port, ssl=context)
    try:
        check_peer(writer, door.certificate)
        yield _Line(door, reader, writer, waited)
    finally:
        await end(writer)


async def _take_all(line: _Line, files: ArrivingFiles, count: Callable[[int], None]) -> dict[str, Path]:
    """Return the files, all of them whole and stored."""
    for file in files:
        await _take(line, file, count)
    stored = await files.store()
    await line.end()
    return stored


async def _take(line: _Line, file: ArrivingFile, count: Callable[[int], None]) -> None:
    """Have a file come as far as it is not there. One that is damaged comes once more from its first byte."""
    for _ in range(2):
        async for piece in line.pieces(file.offered, file.size):
            if isinstance(piece, int):
                await file.add_hole(piece)
                count(1)
            else:
                await file.add(piece)
                count(len(piece))
        if file.is_as_offered():
            return
        log.warning("disk differs from what was offered", file=file.offered.name)
        await file.empty()
    raise DriverError("StorageUnavailable", f"{file.offered.name} differs from what was offered")
