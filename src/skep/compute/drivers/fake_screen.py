"""The screen of a fake guest: one colour, which is the guest's own, over RFB (RFC 6143) without a password."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Callable, Generator

from skep.compute.drivers.base import DriverError, Guest

WIDTH, HEIGHT = 64, 48
VERSION = b"RFB 003.008\n"
NO_PASSWORD = b"\x01"
DONE = bytes(4)
PIXELS = struct.Struct(">4B3H3B3x")
"""Bits of a pixel, depth, byte order, true colour; largest red, green, blue; their shifts (RFC 6143, 7.4)."""
USUAL = PIXELS.pack(32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
SET_PIXELS, SET_ENCODINGS, ASK, CUT_TEXT = 0, 2, 3, 6
LENGTHS = {SET_PIXELS: 20, SET_ENCODINGS: 4, ASK: 10, 4: 8, 5: 6, CUT_TEXT: 8}
"""Kind of a message -> its bytes, without those that it counts itself; 4 and 5 are keys and the pointer (7.5)."""
COUNTED = {SET_ENCODINGS: (">H", 2, 4), CUT_TEXT: (">I", 4, 1)}
"""Kind of a message that goes on -> form and place of the count, and bytes of each thing that it counts (7.5)."""
LONGEST = 1 << 16
"""Bytes of one message; a client that says more is cut off."""


class FakeScreenLine:
    """A connection to a screen; `find` gives the guest as it is now, and raises when it is gone or off."""

    def __init__(self, find: Callable[[], Guest]) -> None:
        self._find = find
        self._guest = find()
        self._pixels = USUAL
        self._heard = bytearray()
        self._said = bytearray(VERSION)
        self._news = asyncio.Event()
        self._ended = False
        self._talk = self._conversation()
        self._wanted = next(self._talk)

    async def read(self) -> bytes:
        """Return what the screen shows."""
        while not self._said and not self._ended:
            await self._news.wait()
            self._news.clear()
        said = bytes(self._said)
        self._said.clear()
        return said

    async def write(self, data: bytes) -> None:
        """Take what a viewer says. Raises DriverError for what is no message."""
        self._find()
        self._heard += data
        while not self._ended and len(self._heard) >= self._wanted:
            heard = bytes(self._heard[: self._wanted])
            del self._heard[: self._wanted]
            self._wanted = self._talk.send(heard)
        if self._wanted > LONGEST:
            raise DriverError("InternalError", "the viewer says more than a message may have")

    async def close(self) -> None:
        """End the line."""
        self._ended = True
        self._news.set()

    def _conversation(self) -> Generator[int, bytes, None]:
        """Say how many bytes are to be heard next, hear them, and answer."""
        yield len(VERSION)
        self._say(bytes([len(NO_PASSWORD)]) + NO_PASSWORD)
        yield 1  # the way of signing in
        self._say(DONE)
        yield 1  # whether other viewers may stay
        name = self._guest.name.encode()
        self._say(struct.pack(">HH", WIDTH, HEIGHT) + USUAL + struct.pack(">I", len(name)) + name)
        while True:
            (kind,) = yield 1
            if kind not in LENGTHS:
                raise DriverError("InternalError", f"the viewer says {kind}, which is no message")
            rest = yield LENGTHS[kind] - 1
            if kind in COUNTED:
                form, place, size = COUNTED[kind]
                (count,) = struct.unpack_from(form, rest, place - 1)
                if count:
                    yield count * size
            elif kind == SET_PIXELS:
                self._pixels = rest[3:]
            elif kind == ASK and not rest[0]:
                self._show()

    def _show(self) -> None:
        """Say what is on the screen; of who asks for what has changed nothing is said, since nothing does."""
        bits, _, big, _, *rest = PIXELS.unpack(self._pixels)
        parts, shifts = rest[:3], rest[3:]
        colour = colour_of(self._guest.instance)
        value = sum((most * part // 255) << shift for most, part, shift in zip(parts, colour, shifts, strict=True)) & (
            (1 << bits) - 1
        )
        pixel = value.to_bytes(bits // 8, "big" if big else "little")
        self._say(struct.pack(">BxHHHHHi", 0, 1, 0, 0, WIDTH, HEIGHT, 0) + pixel * (WIDTH * HEIGHT))

    def _say(self, data: bytes) -> None:
        self._said += data
        self._news.set()


def colour_of(instance: str) -> tuple[int, int, int]:
    """Return red, green and blue of the screen of a guest."""
    red, green, blue, _ = zlib.crc32(instance.encode()).to_bytes(4, "big")
    return red, green, blue
