"""Which node a host is: minted once, kept in the agent's directory for ever."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from skep.domain.errors import Misconfigured
from skep.domain.ids import NodeUuid, is_uuid, new_uuid

IDENTITY_FILE = "identity.json"


class _Identity(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeUuid
    host: str


def load_or_mint(directory: Path, host: str) -> NodeUuid:
    """Return the node's UUID, making it on the first start.

    Raises Misconfigured when the file is damaged or belongs to a host of another name: guests and claims are
    labelled with that host, so it must not be renamed by accident.
    """
    path = directory / IDENTITY_FILE
    if not path.exists():
        return _mint(path, host)
    try:
        identity = msgspec.json.decode(path.read_bytes(), type=_Identity)
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{path} cannot be read: {error}") from error
    if not is_uuid(identity.node):
        raise Misconfigured(f"{path}: node is no UUID")
    if identity.host != host:
        raise Misconfigured(f"{path} belongs to host {identity.host!r}, this agent is {host!r}")
    return identity.node


def _mint(path: Path, host: str) -> NodeUuid:
    identity = _Identity(node=NodeUuid(new_uuid()), host=host)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(identity) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return identity.node
