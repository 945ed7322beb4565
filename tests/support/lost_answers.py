"""A way to a libvirtd on which the answer to one call gets lost: the call is done, and its connection ends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REMOTE = 0x20008086
"""The program of libvirt's protocol that drives domains."""
FINISH = 306
"""The call of that program by which a source has the target end a migration."""
REPLY = 1


@contextmanager
def losing(path: Path, to: Path, call: int) -> Iterator[None]:
    """Listen at one path for connections to another, where answers to the call get lost."""
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.socket(socket.AF_UNIX)
                ends.extend((near, far))
                far.connect(str(to))
                for said in ((near, far, None), (far, near, call)):
                    threads.append(threading.Thread(target=_pass_on, args=said))
                    threads[-1].start()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield
        finally:
            _end(listening)
            accepting.join()
            for end in ends:
                _end(end)
            for thread in threads:
                thread.join()
            for end in ends:
                end.close()
            path.unlink()


def _pass_on(near: socket.socket, far: socket.socket, lost: int | None) -> None:
    """Pass on what one end says, until it ends or answers the call that is `lost`."""
    with suppress(OSError, EOFError):
        while True:
            head = _read(near, 4)
            body = _read(near, struct.unpack(">I", head)[0] - len(head))
            program, _, call, kind = struct.unpack(">4I", body[:16])
            if (program, call, kind) == (REMOTE, lost, REPLY):
                break
            far.sendall(head + body)
    _end(near)
    _end(far)


def _read(end: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = end.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
