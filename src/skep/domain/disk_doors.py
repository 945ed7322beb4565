"""Doors of disks: where the source of a cold move gives the disks of its guest to the target, and what passes there."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

MOST_FILES = 64
"""Of one guest."""
MOST_CERTIFICATE_BYTES = 4096


class DiskDoor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a source waits for the target of one move. It goes to the run of the target's agent only, sealed."""

    address: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z._:%-]{1,253}\Z")]
    """An IP address, or the name of a host."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    token: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """What each request says; it is good for this one move, as long as the door is open."""
    certificate: Annotated[bytes, msgspec.Meta(max_length=MOST_CERTIFICATE_BYTES)]
    """Of the source's agent, DER: it alone is believed to be the source."""

    def __repr__(self) -> str:
        """Leaves the token out."""
        return f"DiskDoor(address={self.address!r}, port={self.port})"


class DisksQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a question of the topic `disks`; bytes are base64 in it. It holds no secret."""

    move: Annotated[str, msgspec.Meta(max_length=36)]
    """UUID of the migration."""
    certificate: Annotated[bytes, msgspec.Meta(max_length=MOST_CERTIFICATE_BYTES)]
    """Of the run of the target's agent, DER: the disks are for it alone."""
    key: Annotated[bytes, msgspec.Meta(max_length=64)]
    """The X25519 key of that run, for which the answer is sealed."""


class OfferedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a guest that is put aside, as the source offers it."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_][0-9A-Za-z._-]{0,199}\Z")]
    """The driver's own name for it: never a path."""
    size: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes."""
    stored: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Bytes that it takes of the source's disk: fewer than `size` where it has holes."""
    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """SHA-256 of its bytes."""


class DiskManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All files of an offer."""

    files: Annotated[tuple[OfferedFile, ...], msgspec.Meta(max_length=MOST_FILES)]


class DiskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a target asks for, as a line of JSON; a connection may ask for one after the other."""

    token: Annotated[str, msgspec.Meta(max_length=64)]
    what: Literal["manifest", "file", "end"]
    """`end`: all is there, so that the door may be shut."""
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Of a file of the manifest."""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The first byte that is wanted of it: the target has those before."""
