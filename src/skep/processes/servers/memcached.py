"""A memcached of one's own: started on a free loopback port, paused, killed and started anew, which is a wipe.

async with MemcachedServer(memory_mb=64) as server:
    ... server.url ...
    await server.restart()  # the same port, nothing kept
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from skep.processes.ports import free_port
from skep.processes.servers.child import ChildServer


class MemcachedServer(ChildServer):
    """One `memcached`."""

    program = "memcached"

    def __init__(self, *, memory_mb: int = 64, options: tuple[str, ...] = ()) -> None:
        """Prepare a server with a memory limit; `options` are further ones of its command line."""
        super().__init__()
        self._memory_mb = memory_mb
        self._options = options

    @property
    def url(self) -> str:
        """Where clients connect; the same after each start."""
        return f"memcached://127.0.0.1:{self.port}"

    def flush(self) -> None:
        """Have the server forget all items, as somebody's `flush_all` does; connections stay."""
        if self._ask(b"flush_all\r\n") != b"OK\r\n":
            raise AssertionError("memcached did not forget")

    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        self.port = self.port or free_port()
        command = [str(program), "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-m", str(self._memory_mb)]
        user = ["-u", "root"] if os.geteuid() == 0 else []
        return subprocess.Popen(
            [*command, *user, "-t", "2", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path("/"),
        )

    def _answers(self, pid: int) -> bool:  # noqa: ARG002 - its port says who it is
        try:
            return self._ask(b"version\r\n").startswith(b"VERSION")
        except OSError:
            return False

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(command)
            return connection.recv(4096)
