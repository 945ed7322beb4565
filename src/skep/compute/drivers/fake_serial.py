"""The serial line of a fake guest: a prompt that names the guest, an echo, and answers to a few words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from skep.compute.drivers.base import DriverError, Guest

LONGEST_LINE = 1024
"""Bytes that are typed before Enter; more are not taken."""
HELD = 64 * 1024
"""Bytes that wait for whoever reads."""
ENTER, ERASE, INTERRUPT, END = b"\r\n", b"\x08\x7f", 3, 4


class FakeSerialLine:
    """A line to a guest; `find` gives the guest as it is now, and raises when it is gone or off."""

    def __init__(self, find: Callable[[], Guest]) -> None:
        self._find = find
        self._typed = bytearray()
        self._said = bytearray()
        self._news = asyncio.Event()
        self._ended = False
        guest = find()
        self._say(f"Connected to {guest.name} ({guest.instance}).\r\n".encode() + self._prompt(guest))

    async def read(self) -> bytes:
        """Return what the guest sent."""
        while not self._said and not self._ended:
            await self._news.wait()
            self._news.clear()
        said = bytes(self._said)
        self._said.clear()
        return said

    async def write(self, data: bytes) -> None:
        """Type on the line."""
        guest = self._find()
        for byte in data:
            self._take(byte, guest)
            if self._ended:
                return

    async def close(self) -> None:
        """End the line."""
        self._ended = True
        self._news.set()

    def _take(self, byte: int, guest: Guest) -> None:
        if byte in ENTER:
            if byte == ENTER[1] and not self._typed:
                return  # The second half of a line's end.
            self._say(b"\r\n" + self._answer(self._typed.decode(errors="replace").strip(), guest))
            self._typed.clear()
            if not self._ended:
                self._say(self._prompt(guest))
        elif byte in ERASE:
            if self._typed:
                del self._typed[-1]
                self._say(b"\b \b")
        elif byte == INTERRUPT:
            self._typed.clear()
            self._say(b"^C\r\n" + self._prompt(guest))
        elif byte == END:
            self._end()
        elif len(self._typed) < LONGEST_LINE:
            self._typed.append(byte)
            self._say(bytes([byte]))

    def _answer(self, line: str, guest: Guest) -> bytes:
        word, _, rest = line.partition(" ")
        answers = {"hostname": guest.name, "id": str(guest.instance), "echo": rest, "": ""}
        if word == "exit":
            self._end()
            return b"logout\r\n"
        said = answers.get(word, f"{word}: not found; this guest knows echo, exit, hostname, id")
        return f"{said}\r\n".encode() if said else b""

    def _prompt(self, guest: Guest) -> bytes:
        return f"{guest.name}:~# ".encode()

    def _say(self, data: bytes) -> None:
        self._said += data[: max(0, HELD - len(self._said))]
        self._news.set()

    def _end(self) -> None:
        self._ended = True
        self._news.set()


def running(guest: Guest | None, instance: str, is_running: Callable[[Guest], bool]) -> Guest:
    """Return a guest that runs. Raises DriverError for one that is gone or off."""
    if guest is None or not guest.whole:
        raise DriverError("InstanceNotFound", f"there is no guest {instance}")
    if not is_running(guest):
        raise DriverError("InstanceNotRunning", f"{instance} is {guest.power_state.name.lower()}, not running")
    return guest
