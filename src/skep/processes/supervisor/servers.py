"""NATS and PostgreSQL for one cloud on this machine: their data stands below its state directory and survives."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from skep.database.locations import Location, address_of, postgresql_url
from skep.domain.errors import Misconfigured
from skep.processes.directory import PASSED_MODE, write_private
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from skep.processes.servers.postgres_access import SUPERUSER
from skep.processes.servers.programs import find_program
from skep.processes.supervisor.nats_probe import until_accepted
from skep.processes.supervisor.passwords import (
    NATS_USERS,
    SETTLE_SECONDS,
    Passwords,
    ServerPasswords,
    nats_old,
    nats_used,
    nats_users,
    roles,
    sign_in,
)
from skep.processes.supervisor.stale import end_stale
from skep.telemetry.logs import get_logger

LOOK_SECONDS = 0.3
"""How often it is looked whether a server still runs."""
START_TRIES = 5
TRY_SECONDS = 1.0
OPEN_TO_OTHERS = Path("/var/lib/skep")
"""Where the data of PostgreSQL is when root starts it from a directory that is closed to others."""
CONNECTIONS = "400"
"""Each process has up to five to each database that it opens."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PACKAGES = {"nats-server": "nats-server", "postgres": "postgresql"}
"""Each program, and the package of Debian that has it."""

log = get_logger(__name__)


class LocalServers:
    """Starts both, starts again the one that dies, on the port that it had, and stops both."""

    def __init__(self, folder: Path) -> None:
        """Raises Misconfigured when the passwords are there and cannot be read."""
        self.folder = folder
        _make_passed(folder)
        self.passwords = ServerPasswords(folder / "passwords.json")
        self._applied: Passwords = {}
        """The passwords that the servers which run take."""
        self.passwords.of(nats_used(self.passwords.known))
        self._nats_users = nats_users(self.passwords.known)
        """Those that NATS takes."""
        self._settled_at = 0.0
        """When processes have signed in by what the file says, by the monotonic clock."""
        self._nats_pid = folder / "nats" / "nats-server.pid"
        self.postgres_folder = _reachable(folder.absolute() / "postgres")
        """Below `folder`, unless nobody but root can get there."""
        self._nats = NatsServer(
            folder / "nats",
            config=self._nats_config(),
            prefix=_ends_with_us("TERM"),
            own_session=True,
        )
        self._postgres = PostgresServer(
            self.postgres_folder,
            password=self.passwords.of(SUPERUSER),
            prefix=_ends_with_us("INT"),
            own_session=True,
            fsync="on",
            max_connections=CONNECTIONS,
        )
        self._starting = threading.Lock()
        """Held while a thread starts PostgreSQL: the thread goes on when the task that waits for it is cancelled."""
        self._is_stopped = False
        self._giving = threading.Lock()
        """Held while PostgreSQL is given passwords: what is read of them is what it gets, and what the files say."""
        self._ports: set[int] = set()
        """Of PostgreSQL, the last time and this time."""
        self._nats_ports: set[int] = set()
        self._watching: asyncio.Task[None] | None = None
        self._at_work = {name: asyncio.Lock() for name in ("nats", "postgres")}
        """Held while a server is started again, or takes other passwords."""

    @property
    def nats_url(self) -> str:
        """Where NATS is; who signs in there stands in `nats_sign_in`."""
        return self._nats.url

    @property
    def nats_sign_in(self) -> Path:
        """The file with the user and password by which processes sign in to NATS; it follows a rotation."""
        return sign_in_file(self.folder)

    @property
    def pids(self) -> dict[str, int | None]:
        """The processes by the names of the servers."""
        return {"nats": self._nats.pid, "postgres": self._postgres.pid}

    async def start(self) -> None:
        """End what an earlier start left behind, and start both; their ports stay the same where they are free.

        Raises Misconfigured when a program is not installed, or a server does not come up.
        """
        _refuse_absent(*PACKAGES)
        self._is_stopped = False
        await asyncio.to_thread(end_stale, self._nats_pid, self.folder)
        await asyncio.to_thread(end_stale, self._postgres.data / "postmaster.pid", self.postgres_folder)
        before = {name: self._noted(name) for name in ("nats", "postgres")}
        self._nats.port, self._postgres.port = (port if _is_free(port) else 0 for port in before.values())
        known = self.passwords.known
        self._take_users(nats_users(known))
        await _tried("nats", self._nats.start)
        self._write_sign_in(known)
        await _tried("postgres", lambda: asyncio.to_thread(self._start_postgres))
        await asyncio.to_thread(self._give_roles)
        self._applied = known
        (self.folder / "nats.port").write_text(str(self._nats.port))
        (self.folder / "postgres.port").write_text(str(self._postgres.port))
        self._nats_ports, self._ports = {before["nats"], self._nats.port}, {before["postgres"], self._postgres.port}
        self._watching = asyncio.create_task(self._watch(), name="local servers")

    async def stop(self) -> None:
        """Stop both in order, also one that is being started; nothing happens where none runs."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        await asyncio.to_thread(self._nats.stop)
        await asyncio.to_thread(self._stop_postgres)

    @contextmanager
    def databases(self) -> Iterator[None]:
        """Run only PostgreSQL for the length of a block, while no cloud does. Blocks.

        Where its port is taken it gets another for this time only: nothing is noted of it. Raises as `start`.
        """
        _refuse_absent("postgres")
        before = self._noted("postgres")
        try:
            end_stale(self._postgres.data / "postmaster.pid", self.postgres_folder)
            self._postgres.port = before if _is_free(before) else 0
            for left in reversed(range(START_TRIES)):
                try:
                    # In the thread of the caller: the kernel ends the server when the thread that started it ends.
                    self._start_postgres()
                except RuntimeError as error:
                    _refuse_after_last("postgres", left, error)
                    time.sleep(TRY_SECONDS)
                else:
                    break
            self._give_roles()
            self._ports = {before, self._postgres.port}
            yield
        finally:
            self._postgres.stop()

    def keeps(self, url: str) -> bool:
        """Tell whether a URL names a database here, by the port of this start or the last, or by the role's password.

        The password, or the file that it stands in, tells it of a URL that is older: what comes from a backup has the
        port of its time.
        """
        parsed = address_of(url) if url.startswith("postgresql") else None
        if parsed is None or parsed.host not in LOOPBACK or parsed.database in (None, "", SUPERUSER):
            return False
        ports = self._ports or {self._noted("postgres")}
        passfile = str(self._passfile(str(parsed.database)))
        named = not parsed.password and parsed.passfile == passfile
        return named or parsed.port in ports or self.passwords.are(str(parsed.database), parsed.password)

    def database_url(self, name: str) -> str:
        """Return the SQLAlchemy URL of a database of the cloud, of the only role that gets into it.

        Its password stands in a file that the URL names, and that follows a rotation.
        """
        return self._url_of(_database(name))

    def renewed_database_url(self, url: str) -> str:
        """Return a database's URL as it is now: one of a database here gets its role and the port of this start."""
        if not self.keeps(url):
            return url
        return self._given(str(address_of(url).database))

    def renewed_location(self, name: str, location: Location) -> Location:
        """Return where a database of the cloud is now: here, unless its URL or a file that is there says otherwise."""
        if isinstance(location, str):
            return self.renewed_database_url(location)
        return location if location.is_file() else self._given(_database(name))

    def _given(self, database: str) -> str:
        """Make a database and its role, or bring what is there to that; return its URL."""
        with self._giving:
            password = self.passwords.of(database)
            self._applied = {**self._applied, database: password}
            self._postgres.give_database(database, password)
            self._write_passfile(database, password)
        return self._url_of(database)

    def _url_of(self, database: str) -> str:
        return postgresql_url(database, "127.0.0.1", self._postgres.port, database, self._passfile(database))

    def _passfile(self, role: str) -> Path:
        return self.folder.absolute() / "passfiles" / role

    def _write_passfile(self, role: str, password: str) -> None:
        """Write a password where libpq looks for it. The words that we make need no escapes there."""
        file = self._passfile(role)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(file, f"*:*:*:{role}:{password}\n".encode())

    def _give_roles(self) -> None:
        """Have PostgreSQL take the passwords that are written down. Blocks."""
        with self._giving:
            superuser, known = self.passwords.of(SUPERUSER), roles(self.passwords.known)
            self._postgres.set_passwords(superuser, known, given=lambda role: self._write_passfile(role, known[role]))

    def _nats_config(self) -> str:
        """Return the text by which NATS takes its users, and nobody else."""
        users = [{"user": NATS_USERS[name], "password": password} for name, password in self._nats_users.items()]
        return f'pid_file: "{self._nats_pid}"\nauthorization: {json.dumps({"users": users})}'

    def _take_users(self, users: Passwords) -> None:
        self._nats_users = dict(users)
        self._nats.reconfigure(self._nats_config())

    def _write_sign_in(self, known: Passwords) -> None:
        content = f"{sign_in(known)}\n".encode()
        if not self.nats_sign_in.exists() or self.nats_sign_in.read_bytes() != content:
            write_private(self.nats_sign_in, content)
            self._settled_at = time.monotonic() + SETTLE_SECONDS

    async def _apply(self) -> None:
        """Have the servers that run take the passwords that were written down, and whoever signs in know them.

        NATS refuses a user only after processes had the time to sign in by another.
        """
        wanted = self.passwords.known
        if wanted != self._applied:
            await asyncio.to_thread(self._give_roles)
            self._take_users({**self._nats_users, **nats_users(wanted)})
            used = nats_used(wanted)
            await until_accepted(self._nats.port, NATS_USERS[used], wanted[used])
            self._write_sign_in(wanted)
            self._applied = wanted
            log.info("passwords of own servers changed", old_user_of_nats=nats_old(wanted) is not None)
        left = nats_users(self._applied)
        if left != self._nats_users and time.monotonic() >= self._settled_at:
            self._take_users(left)

    def renewed_nats_url(self, url: str) -> str:
        """Return the address of NATS servers as it is now: ours with the port of this start, and without a user."""
        if not url or "," in url:
            return url
        parsed = urlsplit(url)
        known = any(self.passwords.are(name, parsed.password) for name in NATS_USERS)
        ours = parsed.port in self._nats_ports or known
        return self.nats_url if parsed.hostname in LOOPBACK and ours else url

    async def make_database(self, name: str) -> None:
        """Make a database and its role; one that is there gets its role."""
        await asyncio.to_thread(self._given, _database(name))

    def _noted(self, server: str) -> int:
        """Return the port that a server had the last time; 0 lets it take a free one."""
        try:
            return int((self.folder / f"{server}.port").read_text())
        except (OSError, ValueError):
            return 0

    async def _watch(self) -> None:
        """Look after each server by itself: one that takes its time to start holds up no other."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep("nats", self._nats, self._nats.start), name="own nats")
            start = partial(asyncio.to_thread, self._start_postgres)
            group.create_task(self._keep("postgres", self._postgres, start), name="own postgres")
            group.create_task(self._keep_passwords(), name="passwords of own servers")

    async def _keep(self, name: str, server: NatsServer | PostgresServer, start: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if server.running:
                continue
            log.warning("server ended, to be started again", server=name)
            try:
                async with self._at_work[name]:
                    await asyncio.to_thread(server.kill)
                    await _tried(name, start)
            except Misconfigured as error:
                log.error("server did not start", server=name, error=str(error)[-300:])
            except Exception:
                log.exception("server did not start", server=name)

    async def _keep_passwords(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if any(at_work.locked() for at_work in self._at_work.values()):
                continue  # to wait for one server holds the other, which may have ended
            try:
                async with self._at_work["postgres"], self._at_work["nats"]:
                    await self._apply()
            except Exception:
                log.exception("passwords of own servers not changed yet")

    def _start_postgres(self) -> None:
        """Start PostgreSQL by the superuser's password that is written down: it may have it without having said so.

        Blocks. Nothing happens after a stop: this thread was too late.
        """
        with self._starting:
            if not self._is_stopped:
                self._postgres.password = self.passwords.of(SUPERUSER)
                self._postgres.start()

    def _stop_postgres(self) -> None:
        """Stop PostgreSQL, and what a thread starts meanwhile. Blocks."""
        self._is_stopped = True
        self._postgres.stop()
        with self._starting:
            self._postgres.stop()


async def _tried(name: str, start: Callable[[], Awaitable[None]]) -> None:
    """Start a server; after a crash the kernel may need a moment to give up what the last one held."""
    for left in reversed(range(START_TRIES)):
        try:
            await start()
        except (AssertionError, RuntimeError) as error:
            _refuse_after_last(name, left, error)
        else:
            return
        await asyncio.sleep(TRY_SECONDS)


def _refuse_after_last(name: str, left: int, error: Exception) -> None:
    """Note that a server did not start. Raises Misconfigured when no try is left."""
    if not left:
        raise Misconfigured(f"{name} does not start: {error}") from error
    log.warning("server not started yet", server=name, error=str(error)[-300:])


def _refuse_absent(*programs: str) -> None:
    """Raise Misconfigured when a program is not installed."""
    for program in programs:
        if find_program(program) is None:
            raise Misconfigured(
                f"{program} is not installed (`apt-get install {PACKAGES[program]}`, or `make up PROCESSES=1`)"
            )


def sign_in_file(folder: Path) -> Path:
    """Return where the user and password by which processes sign in to NATS stand."""
    return folder.absolute() / "nats.sign-in"


def _make_passed(folder: Path) -> None:
    """Make a folder through which PostgreSQL's user gets to its own data; one that is there stays as it is."""
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(PASSED_MODE if os.geteuid() == 0 else 0o700)


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
    """Return where PostgreSQL keeps its data: where it is already, else in `folder`, else beside it.

    It does not run as root, and a state directory below root's home is closed to everybody else.
    """
    beside = OPEN_TO_OTHERS / hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    there = [place for place in (folder, beside) if (place / "data" / "PG_VERSION").exists()]
    if len(there) == 1:
        return there[0]
    closed = any(parent.exists() and not parent.stat().st_mode & 0o001 for parent in folder.parents)
    if os.geteuid() != 0 or not closed:
        return folder
    _make_passed(OPEN_TO_OTHERS)
    if OPEN_TO_OTHERS.stat().st_uid == 0:
        OPEN_TO_OTHERS.chmod(PASSED_MODE)  # a release before made it by the umask, for itself only or open to all
    return beside
