"""A PostgreSQL of one's own: a cluster on a free loopback port, killed and started anew at will.

    with PostgresServer() as server:
        url = server.create_database("cell1")
        ...
        server.restart()  # as a crash does: the same port, the same data

One server serves a whole session of tests (`initdb` takes more than a second), with a database for each test. All
methods block; in a coroutine they are called by `asyncio.to_thread`, or, where nothing else runs, as they are.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from skep.processes.ports import free_port
from skep.processes.servers import postgres_access as access
from skep.processes.servers.programs import find_program

START_SECONDS = 60.0
"""A server that takes no connection within this time after its start has failed."""

STOP_SECONDS = 10.0
"""A server that was asked to stop and has not within this time is killed."""

SETTINGS = {
    "fsync": "off",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "unix_socket_directories": "",
    "logging_collector": "off",
}
"""What a server for tests needs; without fsync its files survive its own death, not the machine's."""


class PostgresServer:
    """One cluster in a folder of its own; a context manager, or used by `start` and `remove`.

    PostgreSQL refuses to run as root, so there the user `postgres` runs it, or `nobody`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        password: str = "",
        prefix: Sequence[str] = (),
        own_session: bool = False,
        **settings: str,
    ) -> None:
        """Prepare a server; `settings` are its own parameters (`fsync="on"` for measuring).

        The folder is a temporary one unless one is given. `password` is the superuser's: a random one unless it has to
        be known later; the server gets it at its start, if it has another or none. `prefix` is a command that becomes
        the server, as whoever runs it, e.g. `setpriv`. With `own_session` a Ctrl-C on our terminal does not reach it.
        """
        self.folder = folder if folder is not None else Path(tempfile.mkdtemp(prefix="skep-postgres-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._prefix = tuple(prefix)
        self._own_session = own_session
        self.data = self.folder / "data"
        self.log = self.folder / "postgres.log"
        self.port = 0
        self.password = password or secrets.token_urlsafe(24)
        self._settings = SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = _somebody()
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])

    @property
    def pid(self) -> int | None:
        """The process, or None when none runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended, by itself or by anybody."""
        process = self._process
        return process is not None and process.poll() is None

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy URL of a database; the same after each start."""
        return self.url_of(access.SUPERUSER, self.password, database)

    def url_of(self, role: str, password: str, database: str) -> str:
        """Return the SQLAlchemy URL of a database for a role."""
        return f"postgresql+psycopg://{role}:{password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection of the superuser, in autocommit; the caller closes it."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=access.SUPERUSER,
            password=self.password,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def create_database(self, name: str) -> str:
        """Make an empty database and return its URL."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def give_database(self, name: str, password: str) -> None:
        """Make a database and a role of its name that owns it and sees no other, or bring what is there to that."""
        with self.connect() as connection:
            access.give(connection, name, password)
        with self.connect(name) as connection:
            access.give_content(connection, name)

    def set_passwords(self, password: str, roles: Mapping[str, str], given: Callable[[str], None]) -> None:
        """Give the superuser and those of the roles that are there other passwords, while the server runs.

        `given` is called with each role at once: until whoever signs in by it knows, he is refused.
        """
        with self._connect_while_given(password) as connection:
            if password != self.password or not access.is_closed(self.data, password):
                access.set_password(connection, access.SUPERUSER, password)
                self.password = password
                access.write_rules(self.data, password, self._as)
            known = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
            for name, one in roles.items():
                if name in known:
                    access.set_password(connection, name, one)
                    given(name)

    def _connect_while_given(self, password: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as the superuser, who may have a new password already: the answer to that may have been lost."""
        try:
            return self.connect()
        except psycopg.OperationalError:
            before, self.password = self.password, password
            try:
                return self.connect()
            except psycopg.OperationalError:
                self.password = before
            raise

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def start(self) -> None:
        """Start the server and wait until it takes connections; the first start makes the cluster.

        Raises FileNotFoundError when PostgreSQL is absent, and RuntimeError with the end of the log when it does not
        come up.
        """
        if not self.data.exists():
            self._initdb()
        # A new one lets nobody in yet; one of an older release lets everybody in, or its password was lost.
        if not access.is_closed(self.data, self.password):
            access.close(self.data, self.password, _program("postgres"), self._as)
        self.port = self.port or free_port()
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [
            *self._prefix,
            _program("postgres"),
            "-D",
            str(self.data),
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            *settings,
        ]
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            os.fchmod(log.fileno(), 0o600)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=self._own_session,
                **self._as,
            )
        self._wait_until_ready()

    def restart(self) -> None:
        """Kill the server as a crash does, and start it again on its data."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """End all its processes at once (SIGKILL); what the kernel was given of its files stays."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                _signal_all(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)
            self._process = None

    def stop(self) -> None:
        """End the server in order, whoever is connected; nothing happens when none runs."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        # Another thread may wait for the start of this process, and finds that it ended.
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def pause(self) -> None:
        """Halt all its processes with their connections open (SIGSTOP): they take bytes and answer nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a halted server go on."""
        self._signal(signal.SIGCONT)

    def copy_data(self, to: Path) -> None:
        """Copy the whole cluster into a new folder `to`; only while it does not run, so that the copy is whole."""
        self._must_not_run()
        shutil.copytree(self.data, to)

    def restore_data(self, copied: Path) -> None:
        """Put a copy in place of the cluster; only while it does not run."""
        self._must_not_run()
        shutil.rmtree(self.data)
        shutil.copytree(copied, self.data)
        if self._as:
            for path in (self.data, *self.data.rglob("*")):
                os.chown(path, self._as["user"], self._as["group"])

    def remove(self) -> None:
        """End the server, which need write nothing any more, and remove its folder."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def _initdb(self) -> None:
        options = ["-A", "reject", "-U", access.SUPERUSER, "--no-sync", "-E", "UTF8", "--locale=C"]
        made = subprocess.run(
            [_program("initdb"), "-D", str(self.data), *options],
            capture_output=True,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr.decode(errors='replace')}")

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError as error:
                ended = not self.running
                if ended or time.monotonic() > end:
                    self.kill()
                    raise RuntimeError(f"PostgreSQL did not start: {self._end_of_log()}") from error
            else:
                return
            time.sleep(0.02)

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("the server does not run")
        _signal_all(self._process.pid, number)

    def _must_not_run(self) -> None:
        if self._process is not None:
            raise RuntimeError("the server runs")


def _signal_all(parent: int, number: signal.Signals) -> None:
    """Signal a server and its children, which have left its process group."""
    os.kill(parent, signal.SIGSTOP)  # it makes no more children then, and they can still be listed
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), number)
    os.kill(parent, number)


def _program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return str(found)


def _somebody() -> dict[str, Any]:
    """Return whom the server's processes run as, for `subprocess`; empty: as ourselves."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user `postgres` nor a user `nobody`")
