"""The keys of the tokens: a file only its owner may read, newest key first."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from skep.domain.errors import Misconfigured

KEYS_KEPT = 3
"""Keys in the file: the newest encrypts, the older ones still read what they encrypted."""


class TokenKeys:
    """Encrypts with the newest key, reads with any. Follows the file when somebody rotates it."""

    def __init__(self, path: Path) -> None:
        """Open the key file, or make it with one random key.

        Raises Misconfigured when others may read the file or it holds no key.
        """
        self._path = path
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        self._load()

    def encrypt(self, payload: bytes, now: int) -> bytes:
        """Encrypt and sign; `now` in microseconds."""
        self._follow()
        return self._fernet.encrypt_at_time(payload, now // 1_000_000)

    def decrypt(self, token: bytes) -> bytes | None:
        """Return what one of the keys encrypted, or None when none of them did."""
        try:
            return self._fernet.decrypt(token)
        except InvalidToken:
            if not self._follow():
                return None
        try:
            return self._fernet.decrypt(token)
        except InvalidToken:
            return None

    def _follow(self) -> bool:
        try:
            unchanged = _version(self._path) == self._version
        except FileNotFoundError:
            # Removed while we run: the keys we hold stay good.
            unchanged = True
        if unchanged:
            return False
        self._load()
        return True

    def _load(self) -> None:
        if stat.S_IMODE(self._path.stat().st_mode) & 0o077:
            raise Misconfigured(f"{self._path} may be read by others: chmod 600 it")
        self._version = _version(self._path)
        try:
            self._fernet = MultiFernet([Fernet(key) for key in self._path.read_bytes().split()])
        except ValueError as error:
            raise Misconfigured(f"{self._path} holds no valid key") from error


def rotate(path: Path) -> None:
    """Put a new key first and drop the oldest beyond KEYS_KEPT; running processes follow by themselves.

    Rotate no more often than the life of a token, or tokens end early.
    """
    keys = [Fernet.generate_key(), *path.read_bytes().split()][:KEYS_KEPT]
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    _write(new, b"\n".join(keys) + b"\n")
    new.replace(path)
    _sync_directory(path.parent)


def _create(path: Path) -> None:
    """Make the file whole under another name and link it, so that of two processes one wins and none reads half."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    _write(new, Fernet.generate_key() + b"\n")
    try:
        path.hardlink_to(new)
    except FileExistsError:
        return
    finally:
        new.unlink()
    _sync_directory(path.parent)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
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
