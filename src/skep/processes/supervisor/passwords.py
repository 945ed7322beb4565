"""The passwords of the servers that a cloud of processes has of its own: random, made when they are first needed.

They stand in one file, by the names of the roles of PostgreSQL (the superuser's is `postgres`) and of the users of
NATS. NATS has two users by turns, `nats` and `nats_2`, so that old and new are both taken for a while; which one
processes sign in by stands there too. Whoever writes the file holds its lock: the cloud that runs, or `skep keys`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured
from skep.processes.directory import write_private
from skep.processes.servers.postgres_access import SUPERUSER
from skep.standalone import ownership

BYTES = 24
NATS_USERS: Mapping[str, str] = {"nats": "skep", "nats_2": "skep_2"}
"""What the users of NATS are called in the file, and on the server."""
USED_BY_NATS = "nats_used"
"""Stands before the name of the user of NATS that processes sign in by; absent: the first."""
SETTLE_SECONDS = 15.0
"""Within this time processes sign in by the new user of NATS: each looks every second, and goes over."""

Passwords = Mapping[str, str]


def nats_used(known: Passwords) -> str:
    """Return the name of the user of NATS that processes sign in by."""
    return known.get(USED_BY_NATS, "nats")


def nats_old(known: Passwords) -> str | None:
    """Return the name of the user of NATS that is taken although nothing uses it any more; None: there is none."""
    return next((name for name in NATS_USERS if name in known and name != nats_used(known)), None)


def roles(known: Passwords) -> dict[str, str]:
    """Return the passwords of the roles of PostgreSQL, without the superuser's."""
    return {name: one for name, one in known.items() if name not in {*NATS_USERS, USED_BY_NATS, SUPERUSER}}


def nats_users(known: Passwords) -> dict[str, str]:
    """Return the passwords of the users that NATS takes."""
    return {name: known[name] for name in NATS_USERS if name in known}


def sign_in(known: Passwords) -> str:
    """Return the user and password by which processes sign in to NATS, as the file that they follow has it."""
    used = nats_used(known)
    return f"{NATS_USERS[used]}:{known.get(used, '')}"


def replaced(known: Passwords) -> dict[str, str]:
    """Return new passwords for all: of PostgreSQL in place of the old ones, for NATS by its other user."""
    fresh = {name: _new() for name in (*roles(known), SUPERUSER)}
    used = nats_used(known)
    other = next(name for name in NATS_USERS if name != used)
    return {**fresh, used: known.get(used) or _new(), other: _new(), USED_BY_NATS: other}


def without_old(known: Passwords) -> dict[str, str]:
    """Return the passwords without that of the user of NATS that nothing uses any more."""
    old = nats_old(known)
    return {name: one for name, one in known.items() if name != old}


class ServerPasswords:
    """What stands in the file, which only its owner may read. It is read again where another has written it."""

    def __init__(self, path: Path) -> None:
        """Raises Misconfigured when the file is there and cannot be read."""
        self._path = path
        self._known: Passwords = {}
        self._version: tuple[int, int] | None = None
        self._follow()

    @property
    def known(self) -> Passwords:
        """All that stands there now. Raises Misconfigured when it cannot be read."""
        self._follow()
        return self._known

    def of(self, name: str) -> str:
        """Return a password; a new one is on disk before it is returned, and so before it is used."""
        if name not in self.known:
            self.change(lambda known: known if name in known else {**known, name: _new()})
        return self._known[name]

    def are(self, name: str, password: object) -> bool:
        """Tell whether this is the password that is written down."""
        known = self.known.get(name)
        return (
            known is not None
            and isinstance(password, str)
            and secrets.compare_digest(known.encode(), password.encode())
        )

    def change(self, changed: Callable[[Passwords], Passwords]) -> None:
        """Write down what `changed` makes of what stands there."""
        with self._held():
            self._follow()
            fresh = changed(self._known)
            write_private(self._path, msgspec.json.format(msgspec.json.encode(fresh)) + b"\n")
            self._follow()

    @contextmanager
    def _held(self) -> Iterator[None]:
        lock = ownership.open_lock(self._path.with_suffix(".lock"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _follow(self) -> None:
        try:
            status = self._path.stat()
            version = status.st_mtime_ns, status.st_ino
            if version != self._version:
                self._known = json_decoder(dict[str, str]).decode(self._path.read_bytes())
                self._version = version
        except FileNotFoundError:
            self._known, self._version = {}, None
        except (OSError, msgspec.DecodeError) as error:
            raise Misconfigured(f"{self._path} cannot be read: {error}; without it new passwords are made") from error


def _new() -> str:
    return secrets.token_urlsafe(BYTES)
