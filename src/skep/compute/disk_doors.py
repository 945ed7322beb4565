"""Doors of disks: a source gives the disks of a guest that it has put aside to the target of that one move.

A door is opened by a question that came through the cell's conductor, for the one run of the target's agent whose
certificate the question names. It gives the files that the driver keeps for the attempt and nothing else, any number of
times from any byte. It ends when the target has all, when the guest is no longer put aside for the move, when nothing
came through it for a while, and with the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from ssl import SSLContext

import msgspec
import structlog

from skep.compute.disk_wire import (
    BLOCK,
    DATA,
    END,
    HOLE,
    MANIFEST,
    MOST_LINE,
    MOST_TEXT,
    REFUSED,
    SAYING_SECONDS,
    WAIT,
    ZEROS,
    BrokenWire,
    Pace,
    RunProof,
    check_peer,
    end,
    send,
)
from skep.compute.drivers.base import DriverError, MoveDriver
from skep.compute.host import Host
from skep.compute.partial_file import to_its_end
from skep.domain.decoding import json_decoder
from skep.domain.disk_doors import DiskDoor, DiskManifest, DiskRequest, OfferedFile
from skep.domain.ids import InstanceUuid
from skep.http.closing import stop_accepting

log = structlog.get_logger("skep.compute")

MOST_DOORS = 128
"""Of one host, one for each move."""
MOST_OF_DOOR = 2
"""Connections to one door at a time: one that was cut may not have ended yet when the next one comes."""
LOOK_SECONDS = 0.5
"""Between two looks whether a door is still wanted."""
UNUSED_SECONDS = 120.0
"""After which a door is shut through which nothing goes, and a connection ended that asks for nothing more: a target
that comes later asks for another. Between two requests it may have to read all that it has."""
WAIT_SECONDS = 2.0
"""Between two words of a source that is at work on its answer."""

_request = json_decoder(DiskRequest)


class TooManyDoors(Exception):
    """The host has as many doors as it may."""


class UnreadableDisks(Exception):
    """The files of a guest cannot be had from its driver, or not be read."""


class _Shut(Exception):
    """The door is shut."""


@dataclass(frozen=True)
class _Offer:
    files: Mapping[str, Path]
    manifest: DiskManifest


@dataclass(eq=False)
class _Door:
    token: str
    instance: InstanceUuid
    attempt: int
    move: str
    certificate: bytes
    context: SSLContext
    offer: asyncio.Task[_Offer]
    """Under way when the door opens: a driver may have to read a disk out first, and all is read for the digests."""
    server: asyncio.Server | None = None
    used: float = 0.0
    """When something last went through it, by the time of the loop."""
    connections: set[asyncio.Task[None]] = field(default_factory=set)
    is_open: bool = True


class DiskDoors:
    """The doors of one host."""

    def __init__(self, host: Host, proof: RunProof, address: str, pace: Pace) -> None:
        """`address`: of this machine, where connections are taken. `pace`: of all doors together."""
        self._host = host
        self._proof = proof
        self._address = address
        self._pace = pace
        self._doors: dict[str, _Door] = {}
        self._watch: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    @property
    def number(self) -> int:
        """How many doors are open."""
        return len(self._doors)

    async def open(self, instance: InstanceUuid, attempt: int, move: str, certificate: bytes) -> DiskDoor:
        """Open a door to the disks of an attempt that is put aside for a move, instead of one that the move has.

        What comes through it hears there whether and when the files are to be had. Raises DriverError where the attempt
        is not put aside, TooManyDoors, OSError when no port can be had or the certificate is none.
        """
        driver = self._host.driver
        if not self._is_aside(instance, attempt, move) or not isinstance(driver, MoveDriver):
            raise DriverError(
                "InstanceNotFound", f"no guest of attempt {attempt} of {instance} is put aside for {move}"
            )
        async with self._changing:
            former = self._doors.get(move)
            if former is None and len(self._doors) >= MOST_DOORS:
                raise TooManyDoors
            context = self._proof.context(certificate, serves=True)
            same = former is not None and former.attempt == attempt and not _failed(former.offer)
            kept = former.offer if former is not None and same else None
            if former is not None:
                await self._shut(former, keeps_offer=same)
            offer = kept or asyncio.create_task(_offer_of(driver, instance, attempt), name=f"offer of {move}")
            token = secrets.token_hex(32)
            door = _Door(token, instance, attempt, move, certificate, context, offer)
            door.used = asyncio.get_running_loop().time()
            try:
                connected = partial(self._connected, door)
                door.server = await asyncio.start_server(connected, self._address, 0, limit=MOST_LINE)
            except BaseException:
                offer.cancel()
                raise
            self._doors[move] = door
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._look(), name=f"doors of {self._host.name}")
        port: int = door.server.sockets[0].getsockname()[1]
        log.info("door to disks opened", host=self._host.name, instance=instance, attempt=attempt, move=move, port=port)
        return DiskDoor(address=self._address, port=port, token=token, certificate=self._proof.certificate)

    async def close(self) -> None:
        """Shut all doors."""
        async with self._changing:
            for door in tuple(self._doors.values()):
                await self._shut(door)
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)

    async def _look(self) -> None:
        """Shut what is not wanted any more, until there is no door."""
        while self._doors:
            # Whoever ends this task holds the lock: no door is left half shut.
            async with self._changing:
                now = asyncio.get_running_loop().time()
                for door in tuple(self._doors.values()):
                    unused = not door.connections and now - door.used > UNUSED_SECONDS
                    if unused or not self._is_aside(door.instance, door.attempt, door.move):
                        await self._shut(door)
            await asyncio.sleep(LOOK_SECONDS)

    async def _shut(self, door: _Door, *, keeps_offer: bool = False) -> None:
        door.is_open = False
        if self._doors.get(door.move) is door:
            del self._doors[door.move]
        if door.server is not None:
            server, door.server = door.server, None
            await stop_accepting(server)
        mine = asyncio.current_task()
        ending = [one for one in door.connections if one is not mine]
        for one in ending:
            one.cancel()
        if not keeps_offer and not _failed(door.offer):
            door.offer.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _connected(self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not door.is_open or len(door.connections) >= MOST_OF_DOOR:
            writer.close()
            return
        task = asyncio.create_task(self._attend(door, reader, writer), name=f"disks of {door.move}")
        door.connections.add(task)
        task.add_done_callback(door.connections.discard)
        # One that is cancelled before it begins closes nothing by itself.
        task.add_done_callback(lambda _task: writer.transport.abort())

    async def _attend(self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SAYING_SECONDS):
                await writer.start_tls(door.context)
                check_peer(writer, door.certificate)
            patience = SAYING_SECONDS
            while await self._serve(door, reader, writer, patience):
                door.used = asyncio.get_running_loop().time()
                patience = UNUSED_SECONDS
        except (OSError, TimeoutError, ValueError, UnreadableDisks, _Shut) as error:
            said = f"{type(error).__name__}: {error}"
            log.info("connection to disks ended", host=self._host.name, move=door.move, error=said)
        finally:
            await end(writer)

    async def _serve(
        self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float
    ) -> bool:
        """Answer one request, which has to come within so many seconds; False when there is no further one."""
        async with asyncio.timeout(patience):
            line = await reader.readline()
        if not line:
            return False
        asked = _request.decode(line)
        if not hmac.compare_digest(asked.token, door.token):
            raise BrokenWire("a request had not the token of the move")
        match asked.what:
            case "manifest":
                await self._say_manifest(door, writer)
            case "file":
                await self._say_file(door, asked, writer)
            case "end":
                log.info("disks given", host=self._host.name, instance=door.instance, move=door.move)
                await self._shut(door)
        return door.is_open

    async def _say_manifest(self, door: _Door, writer: asyncio.StreamWriter) -> None:
        try:
            offer = await self._awaited(door, writer)
        except UnreadableDisks as error:
            await send(writer, REFUSED, str(error).encode()[:MOST_TEXT])
            return
        await send(writer, MANIFEST, msgspec.json.encode(offer.manifest))

    async def _awaited(self, door: _Door, writer: asyncio.StreamWriter) -> _Offer:
        """Wait for the offer, and say meanwhile that it is coming."""
        while not door.offer.done():
            await asyncio.wait([door.offer], timeout=WAIT_SECONDS)
            if not door.offer.done():
                self._check(door)
                await send(writer, WAIT)
        if door.offer.cancelled():
            raise _Shut
        return door.offer.result()

    async def _say_file(self, door: _Door, asked: DiskRequest, writer: asyncio.StreamWriter) -> None:
        offer = await self._awaited(door, writer)
        entry = next((one for one in offer.manifest.files if one.name == asked.name), None)
        if entry is None or asked.offset > entry.size:
            await send(writer, REFUSED, b"there is no such file, or it has not so many bytes")
            return
        descriptor = await asyncio.to_thread(os.open, offer.files[entry.name], os.O_RDONLY | os.O_CLOEXEC)
        try:
            at = asked.offset
            while at < entry.size:
                self._check(door)
                block = await to_its_end(os.pread, descriptor, min(BLOCK, entry.size - at), at)
                if not block:
                    raise BrokenWire(f"{entry.name} has become smaller")
                if ZEROS.startswith(block):
                    await send(writer, HOLE, length=len(block))
                else:
                    await self._pace.take(len(block))
                    await send(writer, DATA, block)
                at += len(block)
                door.used = asyncio.get_running_loop().time()
            await send(writer, END)
        finally:
            os.close(descriptor)

    def _check(self, door: _Door) -> None:
        """Raise _Shut where the door is, or is to be."""
        if not door.is_open or not self._is_aside(door.instance, door.attempt, door.move):
            raise _Shut

    def _is_aside(self, instance: InstanceUuid, attempt: int, move: str) -> bool:
        record = self._host.journal.attempts.get(instance)
        opened = record.open.get(attempt) if record is not None and attempt > record.terminate_up_to else None
        return opened is not None and opened.aside == move


def _failed(offer: asyncio.Task[_Offer]) -> bool:
    return offer.done() and (offer.cancelled() or offer.exception() is not None)


async def _offer_of(driver: MoveDriver, instance: InstanceUuid, attempt: int) -> _Offer:
    """Have the driver give the files, and look at all of them. Raises UnreadableDisks."""
    try:
        files = dict(await driver.kept(instance, attempt))
    except DriverError as error:
        raise UnreadableDisks(f"{error.error}: {error.message}") from error
    return _Offer(files, await _manifest_of(files))


async def _manifest_of(files: Mapping[str, Path]) -> DiskManifest:
    """Look at all files. Raises UnreadableDisks."""
    stopped = False

    def look() -> DiskManifest:
        return DiskManifest(files=tuple(_offered(name, path, lambda: stopped) for name, path in files.items()))

    try:
        return await asyncio.to_thread(look)
    except OSError as error:
        raise UnreadableDisks(str(error)) from error
    finally:
        # Nothing stops a thread but itself.
        stopped = True


def _offered(name: str, path: Path, stopped: Callable[[], bool]) -> OfferedFile:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        while block := file.read(BLOCK):
            if stopped():
                raise _Shut
            digest.update(block)
            size += len(block)
    return OfferedFile(name=name, size=size, stored=min(size, status.st_blocks * 512), digest=digest.hexdigest())
