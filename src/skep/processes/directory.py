"""The state directory: what stands where, and who may use it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from skep.compute.identity import IDENTITY_FILE, load
from skep.config.compute import ComputeSettings
from skep.domain.errors import Misconfigured
from skep.processes import privacy
from skep.standalone import ownership
from skep.standalone.key_ring import KeyRing, keys_in
from skep.telemetry.logs import get_logger

PASSED_MODE = 0o711
"""Of a directory that the user of PostgreSQL has to get through."""

OURS = (
    "db",
    "images",
    "images-of-hosts",
    "snapshots",
    "keys",
    "hosts",
    "exchange",
    "enrolling",
    "logs",
    "servers",
    ".gitignore",
    "clouds.yaml",
    "first-key",
    "compute.toml",
    "networks-of-hosts",
    "processes.env",
    "lock",
    "supervisor.lock",
    "seed.lock",
    "rotation.lock",
)
"""What we write there: all of it is for its owner only."""

log = get_logger(__name__)


def driver_of_hosts(root: Path) -> str | None:
    """Return the driver that the hosts of the state directory had last; None: they had none, or not the same.

    Raises Misconfigured for a damaged file.
    """
    found = [load(file.parent) for file in sorted((root / "hosts").glob(f"*/*/{IDENTITY_FILE}"))]
    drivers = {one.driver for one in found if one is not None}
    return drivers.pop() or None if len(drivers) == 1 else None


class InUse(Misconfigured):
    """Another process of Skep holds the state directory."""


def step_is_taken(step: str) -> InUse:
    """Return the error of a command that was to take a step of a rotation, and finds that another comes next."""
    return InUse(f"another command has taken the step `{step}` meanwhile: `skep keys list` names the next step")


def is_held(lock: Path, *, alone: bool = False) -> bool:
    """Tell whether a process holds a lock file; `alone`: one that shares it with others does not count.

    Raises OSError when the file is there and cannot be opened.
    """
    try:
        file = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if alone else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


class StateDirectory:
    """Databases, images, keys and fake hosts of one installation. One process at a time holds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tightened = 0
        """How many files and directories were open to others until we came."""
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

    @property
    def servers(self) -> Path:
        """Where the servers that a cloud of many processes has of its own keep their data."""
        return self.root / "servers"

    def host(self, cell: str, host: str) -> Path:
        """Return the directory of a fake host: its journal and its guests."""
        return self.root / "hosts" / cell / host

    def exchange(self, compute: ComputeSettings) -> Path | None:
        """Return where disks go from one host of the own cloud to another, also of another cell.

        None: they go from agent to agent, as `move_address` says.
        """
        if compute.exchange_directory:
            return Path(compute.exchange_directory)
        return None if compute.move_address else self.root / "exchange"

    def hosts(self, cell: str) -> tuple[str, ...]:
        """Return the fake hosts that a cell has here, `host2` before `host10`."""
        try:
            entries = [entry.name for entry in (self.root / "hosts" / cell).iterdir() if entry.is_dir()]
        except FileNotFoundError:
            return ()
        return tuple(sorted(entries, key=lambda name: (len(name), name)))

    def make(self, *, passed: bool = False) -> None:
        """Make the directory, and close it and all that it holds to others; what we write from now on is closed too.

        `passed` makes a new one that PostgreSQL, which runs as another user, gets through to its data.
        Raises Misconfigured when it cannot be made.
        """
        try:
            privacy.make_parents(self.root)
            privacy.begin()
            is_new = not self.root.exists()
            self.root.mkdir(exist_ok=True)
            if self.root.stat().st_mode & stat.S_ISVTX:
                raise Misconfigured(f"state directory {self.root} is shared by all users: choose one for Skep alone")
            if is_new and passed:
                self.root.chmod(PASSED_MODE)
            self._keep_out_of_git()
            self._tighten(passed=passed)
        except OSError as error:
            raise self._unusable(error) from error

    def _keep_out_of_git(self) -> None:
        """Have git leave out the keys and passwords of a directory that stands in a repository."""
        path = self.root / ".gitignore"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        with os.fdopen(descriptor, "wb") as file:
            ownership.give(descriptor, self.root)
            file.write(b"*\n")

    def _tighten(self, *, passed: bool) -> None:
        through, left = self._of_another_user(passed=passed)
        # What stands beside our own is not ours to change; the directory above it is closed all the same.
        mine = [self.root / name for name in OURS]
        self.tightened = privacy.close(self.root, through) + sum(privacy.tighten(path, through, left) for path in mine)
        for note in self.notes():
            log.warning(note)

    def notes(self) -> tuple[str, ...]:
        """Return what is to be said of the directory, one line each."""
        said = []
        if self.tightened:
            said.append(
                f"{self.root} was open to other users of this machine, {self.tightened} files and directories: now "
                "only their owner can read them"
            )
        if privacy.is_open(self.root):
            said.append(f"{self.root} is open to other users of this machine and belongs to another: have it closed")
        return tuple(said)

    def _of_another_user(self, *, passed: bool) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Return which directories the user of PostgreSQL has to get through, and which are his own."""
        data = self.servers / "postgres"
        if passed or (data.exists() and data.stat().st_uid != self.root.stat().st_uid):
            return (self.root, self.servers), (data,)
        return (), ()

    def _unusable(self, error: OSError) -> Misconfigured:
        return Misconfigured(f"state directory {self.root} cannot be used: {error.strerror}")

    def open(self, *, shared: bool = False, passed: bool = False) -> None:
        """Make the directory and hold it, alone or with other processes that share it; `passed` as in `make`.

        Raises Misconfigured when it cannot be made or written, InUse when another process holds it.
        """
        self.make(passed=passed)
        try:
            self.databases.mkdir(exist_ok=True)
            self.images.mkdir(exist_ok=True)
            self.keys.mkdir(exist_ok=True)
            lock = ownership.open_lock(self.root / "lock")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise InUse(f"state directory {self.root} is in use by another process of Skep") from None
        self._lock = lock

    def close(self) -> None:
        """Let others hold it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @asynccontextmanager
    async def turn(self, what: str) -> AsyncIterator[None]:
        """Wait until no other process of this machine that shares the directory does the same."""
        lock = ownership.open_lock(self.root / f"{what}.lock")
        try:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @property
    def secrets_key(self) -> Path:
        """The file of the key that seals secrets."""
        return self.keys / "secrets.key"

    @property
    def token_keys(self) -> Path:
        """The file of the keys of tokens."""
        return self.keys / "tokens.keys"

    @property
    def nats_key(self) -> Path:
        """The file of the secrets that users and keys of NATS follow from."""
        return self.keys / "nats.key"

    def seal(self) -> KeyRing:
        """Return what seals the secrets of servers, addresses and kept answers; its first key is made once."""
        return KeyRing(self.secrets_key, private=False)


def unsealing_by(key: Path) -> Callable[[bytes], bytes | None]:
    """Return what decrypts by the keys in a file; None for what another has encrypted, or where there is no file."""

    def unseal(sealed: bytes) -> bytes | None:
        if not key.exists():
            return None
        try:
            return MultiFernet([Fernet(one) for one in keys_in(key)]).decrypt(sealed)
        except (Misconfigured, InvalidToken) as error:
            log.debug("key did not open a sealed value", key=str(key), error=repr(error))
            return None

    return unseal


def sealing_by(key: Path) -> Callable[[bytes], bytes | None]:
    """Return what encrypts by the first key in a file; None where there is no file, or no key in it."""

    def seal(plain: bytes) -> bytes | None:
        if not key.exists():
            return None
        try:
            return Fernet(keys_in(key)[0]).encrypt(plain)
        except Misconfigured as error:
            log.debug("key did not seal a value", key=str(key), error=repr(error))
            return None

    return seal


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all; root leaves it to the owner that it had."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        ownership.give(descriptor, path)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
