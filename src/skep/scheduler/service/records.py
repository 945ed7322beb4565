"""What the synchronizer carries: one kind of value for each namespace, and its form as bytes.

The epoch and the generation stand inside the bytes too: a record of another epoch, or one whose generation is not the
backend's, says nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_scheduler import AggregateWish, CellWish, HostWish
from skep.scheduler.groups import GroupSlot
from skep.synchronizer.base import Key, Record

COMPUTE = "compute"
"""By node: what the host reported and the claims on it."""
GROUPS = "groups"
"""By server group: the slots of its members."""
OPERATOR = "operator"
"""By node: its mapping and what the operator wants of it."""
AGGREGATES = "aggregates"
"""By aggregate id."""
CELLS = "cells"
"""By cell: what the operator wants of it, and whether it has asserted under this epoch."""
BEATS = "beats"
"""By cell and conductor (`beat_key`): whom that conductor heard lately."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The latest report of a host."""

    incarnation: int
    seq: int
    usage: HostUsage


class ComputeValue(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    cell: CellUuid
    report: Report | None = None
    """None: claims were asserted before the host spoke in this epoch."""
    claims: tuple[Claim, ...] = ()


class GroupValue(msgspec.Struct, frozen=True, kw_only=True):
    """One server group."""

    slots: tuple[GroupSlot, ...]


class CellValue(msgspec.Struct, frozen=True, kw_only=True):
    """One cell."""

    wish: CellWish | None = None
    """None: the operator has not named it."""
    asserted: bool = False


class BeatValue(msgspec.Struct, frozen=True, kw_only=True):
    """One cell's latest beat."""

    heard: tuple[NodeUuid, ...]
    at: int
    """When a scheduler took it, microseconds since the epoch: for people to read, not for deciding who lives."""
    listening: bool = False
    """The conductor has only begun to listen: nobody is silent because it omits him."""


KINDS: dict[str, type[Any]] = {
    COMPUTE: ComputeValue,
    GROUPS: GroupValue,
    OPERATOR: HostWish,
    AGGREGATES: AggregateWish,
    CELLS: CellValue,
    BEATS: BeatValue,
}
"""Which kind of value each namespace holds."""

_encoder = msgspec.json.Encoder()
_decoders = {
    namespace: msgspec.json.Decoder(tuple[str, int, kind])  # type: ignore[valid-type]  # built from the table above
    for namespace, kind in KINDS.items()
}


def beat_key(cell: CellUuid, conductor: str) -> Key:
    """Return the key of the beat of one conductor of a cell."""
    return Key(BEATS, f"{cell}/{conductor}")


def encode(epoch: str, generation: int, value: Any) -> bytes:
    """Return the bytes of a record that will have this generation; None makes the empty body that removes it."""
    return b"" if value is None else _encoder.encode((epoch, generation, value))


def decode(epoch: str, record: Record) -> Any:
    """Return the value; None when the record was removed or belongs to another epoch or generation.

    Raises msgspec.DecodeError when the bytes are no such value.
    """
    decoder = _decoders.get(record.key.namespace)
    if decoder is None or not record.body:
        return None
    written_in, generation, value = decoder.decode(record.body)
    return value if (written_in, generation) == (epoch, record.generation) else None
