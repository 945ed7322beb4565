"""NATS and PostgreSQL for one cloud on this machine: their data stands below its state directory and survives."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from skep.domain.errors import Misconfigured
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from skep.processes.servers.programs import find_program
from skep.telemetry.logs import get_logger

LOOK_SECONDS = 0.3
"""How often it is looked whether a server still runs."""
STALE_SECONDS = 10.0
"""How long a server that an earlier start left behind may take to stop until it is killed."""
START_TRIES = 5
OPEN_TO_OTHERS = Path("/var/lib/skep")
"""Where the data of PostgreSQL is when root starts it from a directory that is closed to others."""
CONNECTIONS = "400"
"""Each process has three to each database that it opens."""

log = get_logger(__name__)


class LocalServers:
    """Starts both, starts again the one that dies, on the port that it had, and stops both."""

    def __init__(self, folder: Path) -> None:
        """Raises Misconfigured when a program is not installed."""
        for program, package in (("nats-server", "nats-server"), ("postgres", "postgresql")):
            if find_program(program) is None:
                raise Misconfigured(
                    f"{program} is not installed (`apt-get install {package}`, or `make up PROCESSES=1`)"
                )
        self.folder = folder
        self._nats_pid = folder / "nats" / "nats-server.pid"
        self.postgres_folder = _reachable(folder.absolute() / "postgres")
        """Below `folder`, unless nobody but root can get there."""
        self._nats = NatsServer(
            folder / "nats",
            config=f'pid_file: "{self._nats_pid}"',
            prefix=_ends_with_us("TERM"),
            own_session=True,
        )
        self._postgres = PostgresServer(
            self.postgres_folder, prefix=_ends_with_us("INT"), own_session=True, fsync="on", max_connections=CONNECTIONS
        )
        self._watching: asyncio.Task[None] | None = None

    @property
    def nats_url(self) -> str:
        """Where NATS is."""
        return self._nats.url

    @property
    def pids(self) -> dict[str, int | None]:
        """The processes by the names of the servers."""
        return {"nats": self._nats.pid, "postgres": self._postgres.pid}

    async def start(self) -> None:
        """End what an earlier start left behind, and start both; their ports stay the same where they are free."""
        await asyncio.to_thread(_end_stale, self._nats_pid, self.folder)
        await asyncio.to_thread(_end_stale, self._postgres.data / "postmaster.pid", self.postgres_folder)
        self._nats.port, self._postgres.port = self._remembered("nats"), self._remembered("postgres")
        await _tried("nats", self._nats.start)
        await _tried("postgres", lambda: asyncio.to_thread(self._postgres.start))
        (self.folder / "nats.port").write_text(str(self._nats.port))
        (self.folder / "postgres.port").write_text(str(self._postgres.port))
        self._watching = asyncio.create_task(self._watch(), name="local servers")

    async def stop(self) -> None:
        """Stop both in order; nothing happens where none runs."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        await asyncio.to_thread(self._nats.stop)
        await asyncio.to_thread(self._postgres.stop)

    def database_url(self, name: str) -> str:
        """Return the SQLAlchemy URL of a database of the cloud."""
        return self._postgres.url(_database(name))

    async def make_database(self, name: str) -> None:
        """Make a database unless it is there."""
        await asyncio.to_thread(self._make, _database(name))

    def _make(self, name: str) -> None:
        with contextlib.suppress(psycopg.errors.DuplicateDatabase):
            self._postgres.create_database(name)

    def _remembered(self, server: str) -> int:
        """Return the port that a server had the last time if it is free; 0 lets it take a free one."""
        try:
            port = int((self.folder / f"{server}.port").read_text())
        except (OSError, ValueError):
            return 0
        return port if _is_free(port) else 0

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, server in (("nats", self._nats), ("postgres", self._postgres)):
                if not server.running:
                    log.warning("server ended and is started again", server=name)
                    try:
                        await asyncio.to_thread(server.kill)
                        await _tried(name, self._start_of(name))
                    except Exception:
                        log.exception("server does not start", server=name)

    def _start_of(self, name: str) -> Callable[[], Awaitable[None]]:
        return self._nats.start if name == "nats" else lambda: asyncio.to_thread(self._postgres.start)


async def _tried(name: str, start: Callable[[], Awaitable[None]]) -> None:
    """Start a server; after a crash the kernel may need a moment to give up what the last one held."""
    for left in reversed(range(START_TRIES)):
        try:
            await start()
        except (AssertionError, RuntimeError) as error:
            if not left:
                raise Misconfigured(f"{name} does not start: {error}") from error
            log.warning("server does not start yet", server=name, error=str(error)[-300:])
        else:
            return
        await asyncio.sleep(1.0)


def _database(name: str) -> str:
    return f"skep_{name}"


def _ends_with_us(number: str) -> tuple[str, ...]:
    """Return the command that has the kernel end a server when this process dies; empty where there is none."""
    setpriv = find_program("setpriv")
    return (str(setpriv), "--pdeathsig", number) if setpriv is not None else ()


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reachable(folder: Path) -> Path:
    """Return where PostgreSQL keeps its data: in `folder`, or beside it where its user cannot get there.

    It does not run as root, and a state directory below root's home is closed to everybody else.
    """
    closed = any(parent.exists() and not parent.stat().st_mode & 0o001 for parent in folder.parents)
    if os.geteuid() != 0 or not closed:
        return folder
    return OPEN_TO_OTHERS / hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def _end_stale(pid_file: Path, folder: Path) -> None:
    """End the server that an earlier start of ours left behind, if the file names one that still runs."""
    try:
        pid = int(pid_file.read_text().split()[0])
        ours = str(folder.absolute()).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return
    if not ours:
        return
    log.warning("ending a server that an earlier start left behind", pid=pid)
    end = time.monotonic() + STALE_SECONDS
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.05)
        end += STALE_SECONDS


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
