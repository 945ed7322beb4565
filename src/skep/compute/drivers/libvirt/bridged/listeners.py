"""Sockets of this process that listen inside other network namespaces."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNET = 0x40000000
"""Of Linux' setns(2): the file is a network namespace."""
BACKLOG = 128


def listen_within(space: Path, addresses: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Return sockets that listen at these addresses and ports of the namespace that the file `space` is.

    A socket stays in the namespace in which it was made. A thread that ends then has gone there for it. Blocks.
    Raises OSError.
    """
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            _enter(space)
            made.extend(socket.create_server(address, backlog=BACKLOG) for address in addresses)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="listeners")
    thread.start()
    thread.join()
    for error in failed:
        for one in made:
            one.close()
        raise error
    return made


def _enter(space: Path) -> None:
    """Have this thread be in a network namespace. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with space.open("rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(space))
