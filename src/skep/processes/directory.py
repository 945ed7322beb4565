"""The state directory: what stands where, and who may use it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.fernet import Fernet

from skep.domain.errors import Misconfigured


class StateDirectory:
    """Databases, images, keys and fake hosts of one installation. One process at a time holds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None

    @property
    def databases(self) -> Path:
        """Where the SQLite files are."""
        return self.root / "db"

    @property
    def images(self) -> Path:
        """Where the bytes of images are."""
        return self.root / "images"

    @property
    def keys(self) -> Path:
        """Where keys are; nobody else may read it."""
        return self.root / "keys"

    @property
    def clouds_yaml(self) -> Path:
        """How clients find this cloud; holds passwords."""
        return self.root / "clouds.yaml"

    @property
    def processes_env(self) -> Path:
        """How other commands reach the databases and servers of a cloud of many processes; holds their URLs."""
        return self.root / "processes.env"

    def host(self, cell: str, host: str) -> Path:
        """Return the directory of a fake host: its journal and its guests."""
        return self.root / "hosts" / cell / host

    def hosts(self, cell: str) -> tuple[str, ...]:
        """Return the fake hosts that a cell has here, `host2` before `host10`."""
        try:
            entries = [entry.name for entry in (self.root / "hosts" / cell).iterdir() if entry.is_dir()]
        except FileNotFoundError:
            return ()
        return tuple(sorted(entries, key=lambda name: (len(name), name)))

    def open(self, *, shared: bool = False) -> None:
        """Make the directory and hold it, alone or with other processes that share it.

        Raises Misconfigured when it cannot be made or written, or another process holds it.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.databases.mkdir(exist_ok=True)
            self.images.mkdir(exist_ok=True)
            self.keys.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Misconfigured(f"state directory {self.root} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Misconfigured(f"state directory {self.root} is in use by another process of Skep") from None
        self._lock = lock

    def close(self) -> None:
        """Let others hold it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @asynccontextmanager
    async def turn(self, what: str) -> AsyncIterator[None]:
        """Wait until no other process of this machine that shares the directory does the same."""
        lock = os.open(self.root / f"{what}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def seal(self) -> Fernet:
        """Return what encrypts the secrets of servers between the API and their hosts; its key is made once."""
        path = self.keys / "secrets.key"
        if not path.exists():
            write_private(path, Fernet.generate_key())
        return Fernet(path.read_bytes())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
