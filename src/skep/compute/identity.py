"""Which node a host is, and by which key its agent signs: minted once, kept in the agent's directory for ever."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from skep.domain.errors import Misconfigured
from skep.domain.ids import NodeUuid, is_uuid, new_uuid
from skep.domain.signatures import new_seed

IDENTITY_FILE = "identity.json"
SEED_BYTES = 32


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A host's identity."""

    node: NodeUuid
    host: str
    seed: bytes = b""
    """The private half of the agent's key; none in a file of a release that did not sign."""

    def __repr__(self) -> str:
        """Show no key."""
        return f"Identity({self.node}, {self.host})"


def load_or_mint(directory: Path, host: str) -> Identity:
    """Return the host's identity, making it on the first start.

    Raises Misconfigured when the file is damaged or belongs to a host of another name: guests and claims are
    labelled with that host, so it must not be renamed by accident.
    """
    path = directory / IDENTITY_FILE
    identity = load(directory)
    if identity is None:
        identity = Identity(node=NodeUuid(new_uuid()), host=host, seed=new_seed())
        _write(path, identity)
    if identity.host != host:
        raise Misconfigured(f"{path} belongs to host {identity.host!r}, this agent is {host!r}")
    if not identity.seed:
        identity = msgspec.structs.replace(identity, seed=new_seed())
        _write(path, identity)
    return identity


def load(directory: Path) -> Identity | None:
    """Return the identity of the host whose agent has this directory; None before it has one.

    Raises Misconfigured when the file is damaged.
    """
    path = directory / IDENTITY_FILE
    if not path.exists():
        return None
    try:
        identity = msgspec.json.decode(path.read_bytes(), type=Identity)
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    if not is_uuid(identity.node):
        raise Misconfigured(f"{path}: node is no UUID")
    if len(identity.seed) not in (0, SEED_BYTES):
        raise Misconfigured(f"{path}: seed has {len(identity.seed)} bytes, not {SEED_BYTES}")
    return identity


def _write(path: Path, identity: Identity) -> None:
    """Write the file whole or not at all; nobody else may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(identity) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
