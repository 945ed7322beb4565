"""The secrets that users and keys of NATS follow from (`keys/nats.key`): the first is used, all are taken.

A file of a single secret is its bytes, as every release reads them. While one follows another, and afterwards, it is
text: a line for each, its mark and the secret. In NATS's configuration two users cannot have one name, so the names of
those that follow from a later secret end with its mark; the first secret of an installation has none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from pathlib import Path

import msgspec

from skep.domain.errors import Misconfigured
from skep.processes.directory import write_private
from skep.transport.nats_accounts import NatsPasswords
from skep.transport.nats_keys import Keys

SECRET_BYTES = 32
HEADER = b"skep nats secrets\n"
NO_MARK = "-"


class Secret(msgspec.Struct, frozen=True):
    """One of them."""

    mark: str
    """What names of users end with; empty for the first of an installation."""
    content: bytes

    @property
    def name(self) -> str:
        """By which word people know it; it tells nothing of it."""
        return hashlib.sha256(b"nats " + self.content).hexdigest()[:12]


def secrets_in(path: Path) -> tuple[Secret, ...]:
    """Return the secrets of a file, the one that is used first. Raises Misconfigured when it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path} cannot be used: {error.strerror}") from error
    if not content.startswith(HEADER):
        return (_whole(path, Secret("", content)),)
    try:
        lines = [line.split() for line in content.removeprefix(HEADER).decode("ascii").splitlines()]
        found = tuple(
            Secret("" if mark == NO_MARK else mark, base64.b64decode(text, validate=True)) for mark, text in lines
        )
    except (ValueError, binascii.Error):
        found = ()
    if not found:
        raise Misconfigured(f"{path} holds no secrets, expected those that `skep keys rotate nats` writes")
    return tuple(_whole(path, one) for one in found)


def _whole(path: Path, secret: Secret) -> Secret:
    if len(secret.content) < SECRET_BYTES:
        raise Misconfigured(
            f"{path} holds a secret of {len(secret.content)} bytes, expected at least {SECRET_BYTES}: copy the whole "
            "file again"
        )
    return secret


def names(path: Path) -> tuple[str, ...]:
    """Return the names of the secrets of a file, the one that is used first."""
    return tuple(one.name for one in secrets_in(path))


def add(path: Path) -> str:
    """Put a new secret last: NATS servers take it once they were told, and nothing is made of it yet."""
    content = secrets.token_bytes(SECRET_BYTES)
    fresh = Secret(hashlib.sha256(b"mark " + content).hexdigest()[:8], content)
    _write(path, (*secrets_in(path), fresh))
    return fresh.name


def use(path: Path, name: str) -> None:
    """Make users of this secret from now on. Raises Misconfigured when the file does not hold it."""
    found = secrets_in(path)
    chosen = [one for one in found if one.name == name]
    if not chosen:
        raise Misconfigured(f"{path} holds no secret {name}")
    _write(path, (*chosen, *(one for one in found if one.name != name)))


def drop(path: Path) -> tuple[str, ...]:
    """Forget all but the one that is used; return the names of the others."""
    found = secrets_in(path)
    _write(path, found[:1])
    return tuple(one.name for one in found[1:])


def passwords_of(found: tuple[Secret, ...]) -> NatsPasswords:
    """Return the passwords of users, those that are only taken behind those that are used."""
    first, *others = (NatsPasswords(one.content, one.mark) for one in found)
    return first.followed_by(others)


def keys_of(found: tuple[Secret, ...]) -> Keys:
    """Return the keys that sign JWTs; what the others signed is taken, too."""
    return Keys([one.content for one in found])


def _write(path: Path, found: tuple[Secret, ...]) -> None:
    if len(found) == 1 and not found[0].mark:
        write_private(path, found[0].content)
        return
    lines = (f"{one.mark or NO_MARK} {base64.b64encode(one.content).decode()}\n" for one in found)
    write_private(path, HEADER + "".join(lines).encode())
