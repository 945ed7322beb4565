"""Keys in a file that only its owner may read: the first encrypts, every one reads what it encrypted."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from skep.domain.errors import Misconfigured
from skep.standalone import ownership


class KeyRing:
    """Encrypts with the first key of a file, reads with any. Follows the file when somebody changes it."""

    def __init__(self, path: Path, *, private: bool = True) -> None:
        """Open the key file, or make it with one random key. `private`: refuse one that others may read.

        Raises Misconfigured when others may read the file or it holds no key.
        """
        self._path = path
        self._private = private
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        self._load()

    @property
    def version(self) -> tuple[int, int]:
        """What is another value after the file has changed."""
        self._follow()
        return self._version

    def encrypt(self, payload: bytes, now: int | None = None) -> bytes:
        """Encrypt and sign; `now` in microseconds, otherwise by the machine's clock."""
        self._follow()
        return self._fernet.encrypt(payload) if now is None else self._fernet.encrypt_at_time(payload, now // 1_000_000)

    def decrypt(self, token: bytes) -> bytes | None:
        """Return what one of the keys encrypted, or None when none of them did."""
        self._follow()
        try:
            return self._fernet.decrypt(token)
        except InvalidToken:
            return None

    def _follow(self) -> None:
        try:
            unchanged = _version(self._path) == self._version
        except FileNotFoundError:
            # Removed while we run: the keys we hold stay good.
            unchanged = True
        if not unchanged:
            self._load()

    def _load(self) -> None:
        if self._private and stat.S_IMODE(self._path.stat().st_mode) & 0o077:
            raise Misconfigured(f"{self._path} may be read by others: chmod 600 it")
        self._version = _version(self._path)
        self._fernet = MultiFernet([Fernet(key) for key in keys_in(self._path)])


def keys_in(path: Path) -> tuple[bytes, ...]:
    """Return the keys of a file, the one that encrypts first. Raises Misconfigured when it holds none."""
    try:
        keys = tuple(path.read_bytes().split())
        _ = MultiFernet([Fernet(key) for key in keys])
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path} holds no valid key") from error
    return keys


def name_of(key: bytes) -> str:
    """Return by which word people know a key; it tells nothing of it."""
    return hashlib.sha256(b"key " + key).hexdigest()[:12]


def names(path: Path) -> tuple[str, ...]:
    """Return the names of the keys of a file, the one that encrypts first. Raises Misconfigured as `keys_in`."""
    return tuple(name_of(key) for key in keys_in(path))


def add(path: Path) -> str:
    """Put a new key last: whoever has the file reads by it from now on, and nothing is encrypted by it yet.

    Returns its name.
    """
    fresh = Fernet.generate_key()
    _replace(path, (*keys_in(path), fresh))
    return name_of(fresh)


def use(path: Path, name: str) -> None:
    """Encrypt by this key from now on. Raises Misconfigured when the file does not hold it."""
    keys = keys_in(path)
    chosen = [key for key in keys if name_of(key) == name]
    if not chosen:
        raise Misconfigured(f"{path} holds no key {name}")
    _replace(path, (*chosen, *(key for key in keys if key not in chosen)))


def drop(path: Path) -> tuple[str, ...]:
    """Forget all keys but the one that encrypts; return their names."""
    keys = keys_in(path)
    _replace(path, keys[:1])
    return tuple(name_of(key) for key in keys[1:])


def take_in(path: Path, other: Path) -> tuple[str, ...]:
    """Add the keys of another file behind those that are there: what they encrypted can be read then.

    Return the names of those that were not there.
    """
    keys = keys_in(path)
    more = tuple(key for key in keys_in(other) if key not in keys)
    if more:
        _replace(path, (*keys, *more))
    return tuple(name_of(key) for key in more)


def _replace(path: Path, keys: Sequence[bytes]) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    _write(new, b"\n".join(keys) + b"\n", place=path)
    new.replace(path)
    _sync_directory(path.parent)


def _create(path: Path) -> None:
    """Make the file whole under another name and link it, so that of two processes one wins and none reads half."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    _write(new, Fernet.generate_key() + b"\n", place=path)
    try:
        path.hardlink_to(new)
    except FileExistsError:
        return
    finally:
        new.unlink()
    _sync_directory(path.parent)


def _write(path: Path, content: bytes, place: Path) -> None:
    """Write a file that is to be put in another place, and belongs to the owner of what is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        ownership.give(descriptor, place)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino
