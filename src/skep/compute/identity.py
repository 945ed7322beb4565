"""Which node a host is, and by which key its agent signs: minted once, kept in the agent's directory for ever."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import structlog

from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured, StorageUnavailable
from skep.domain.ids import NodeUuid, is_uuid, new_uuid
from skep.domain.signatures import new_seed

IDENTITY_FILE = "identity.json"
SEED_BYTES = 32

log = structlog.get_logger("skep.compute")


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A host's identity."""

    node: NodeUuid
    host: str
    seed: bytes = b""
    """The private half of the agent's key; none in a file of a release that did not sign."""
    cell_key: bytes = b""
    """The public half of the key of the host's cell; empty until an enrolment or a registration told it."""
    next_seed: bytes = b""
    """The private half of the key that is to follow: the cell's conductors bind it when the agent registers."""
    runs: int = 0
    """The number of the latest run of the agent: each gets a higher one."""
    driver: str = ""
    """The name of the driver that the latest run had; empty in a file of a release that did not note it."""

    def __repr__(self) -> str:
        """Show no key."""
        return f"Identity({self.node}, {self.host})"


def load_or_mint(directory: Path, host: str) -> HostIdentity:
    """Return the host's identity, making it on the first start.

    Raises Misconfigured when the file is damaged or belongs to a host of another name: guests and claims are
    labelled with that host, so it must not be renamed by accident.
    """
    path = directory / IDENTITY_FILE
    identity = load(directory)
    if identity is None:
        identity = HostIdentity(node=NodeUuid(new_uuid()), host=host, seed=new_seed())
        _write(path, identity)
    if identity.host != host:
        raise Misconfigured(f"{path} belongs to host {identity.host!r}, this agent is {host!r}")
    if not identity.seed:
        identity = msgspec.structs.replace(identity, seed=new_seed())
        _write(path, identity)
    return identity


def begin_run(directory: Path, host: str, driver: str = "") -> HostIdentity:
    """Return the host's identity with the number of the run of its agent that begins, and note its driver.

    Numbers are microseconds since the epoch, so that they grow even where the directory was set back; and they grow
    where the clock was set back.

    Raises Misconfigured as `load_or_mint` does.
    """
    identity = load_or_mint(directory, host)
    runs = max(identity.runs + 1, time.time_ns() // 1000)
    identity = msgspec.structs.replace(identity, runs=runs, driver=driver or identity.driver)
    try:
        _write(directory / IDENTITY_FILE, identity)
    except OSError as error:
        # A full disk does not keep an agent from its guests: the clock alone makes the number grow, this once.
        log.warning("incarnation not stored", host=host, error=str(error))
    return identity


def keep_cell_key(directory: Path, cell_key: bytes) -> None:
    """Write down by which key the conductors of the host's cell are known.

    Raises Misconfigured when there is no identity any more, StorageUnavailable when it cannot be written now.
    """
    identity = load(directory)
    if identity is None:
        raise Misconfigured(f"{directory / IDENTITY_FILE} is missing")
    try:
        _write(directory / IDENTITY_FILE, msgspec.structs.replace(identity, cell_key=cell_key))
    except OSError as error:
        raise StorageUnavailable(f"{directory / IDENTITY_FILE} cannot be written: {error.strerror}") from error


def make_next_key(directory: Path) -> HostIdentity:
    """Make the key that is to follow, unless there is one already; the agent brings it at its next start.

    Raises Misconfigured when the directory holds no identity with a key.
    """
    identity = load(directory)
    if identity is None or not identity.seed:
        raise Misconfigured(f"{directory / IDENTITY_FILE} holds no key of a host")
    if not identity.next_seed:
        identity = msgspec.structs.replace(identity, next_seed=new_seed())
        _write(directory / IDENTITY_FILE, identity)
    return identity


def take_next_key(directory: Path, next_seed: bytes) -> None:
    """Sign by the next key from now on: it is bound in the cell, and the one before is worth nothing any more.

    Raises Misconfigured when there is no identity any more, StorageUnavailable when it cannot be written now.
    """
    identity = load(directory)
    if identity is None:
        raise Misconfigured(f"{directory / IDENTITY_FILE} is missing")
    try:
        _write(directory / IDENTITY_FILE, msgspec.structs.replace(identity, seed=next_seed, next_seed=b""))
    except OSError as error:
        raise StorageUnavailable(f"{directory / IDENTITY_FILE} cannot be written: {error.strerror}") from error


def load(directory: Path) -> HostIdentity | None:
    """Return the identity of the host whose agent has this directory; None before it has one.

    Raises Misconfigured when the file is damaged.
    """
    path = directory / IDENTITY_FILE
    if not path.exists():
        return None
    try:
        identity = json_decoder(HostIdentity).decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    if not is_uuid(identity.node):
        raise Misconfigured(f"{path}: node is no UUID")
    if len(identity.seed) not in (0, SEED_BYTES):
        raise Misconfigured(f"{path}: seed has {len(identity.seed)} bytes, not {SEED_BYTES}")
    return identity


def _write(path: Path, identity: HostIdentity) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(identity) + b"\n")
