"""What the synchronizer carries: one kind of value for each namespace, and its form as bytes.

The epoch and the generation stand inside the bytes too: a record of another epoch, or one whose generation is not the
backend's, says nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim
from skep.domain.decoding import json_decoder
from skep.domain.hosts import RefusedReport, Report
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.namespaces import Namespace
from skep.messages.to_scheduler import AggregatePage
from skep.placement.groups import GroupSlot
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
"""By cell and conductor (`beat_key`): that this conductor lives, and which pages say whom it hears."""
HEARING = "hearing"
"""By cell, conductor and page (`hearing_key`): some of the nodes that it hears. Written only when they change."""

NAMESPACES = "namespaces"
"""By name: the namespaces of other services, as they registered them."""
STATES = "states"
"""By namespace and key (`state_key`): what other services tell of hosts."""


SCHEDULERS = "schedulers"
"""By run of a scheduler: that it lives."""


class ComputeValue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node."""

    cell: CellUuid
    report: Report | None = None
    """None: claims were asserted before the host spoke in this epoch."""
    claims: tuple[Claim, ...] = ()
    incomplete: bool = False
    """The record was lost: there may be claims that nobody has told again, so the node is no candidate."""
    refused: RefusedReport | None = None
    """Why the host's latest report was not taken; `report` is the last good one."""


class GroupValue(msgspec.Struct, frozen=True, kw_only=True):
    """One server group."""

    slots: tuple[GroupSlot, ...]
    incomplete: bool = False
    """The record was lost: there may be members that their cells have not told again."""
    told: tuple[CellUuid, ...] = ()
    """While it is incomplete: cells that have told their members again."""


class CellValue(msgspec.Struct, frozen=True, kw_only=True):
    """One cell."""

    intent: Cell | None = msgspec.field(default=None, name="wish")
    """The operator's; None: the operator has not named the cell."""
    asserted: bool = False


class BeatValue(msgspec.Struct, frozen=True, kw_only=True):
    """The latest beat of one conductor of a cell."""

    at: int
    """When a scheduler took it, microseconds since the epoch: for people to read, not for deciding who lives."""
    listening: bool = False
    """The conductor has only begun to listen: nobody is silent because it omits him."""
    pages: tuple[int, ...] | None = None
    """The version of each page of nodes that it hears; None: they are all in `heard`."""
    heard: tuple[NodeUuid, ...] = ()
    """Where there are no pages."""


class HearingValue(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the nodes that a conductor hears."""

    version: int
    nodes: tuple[NodeUuid, ...]


class StateValue(msgspec.Struct, frozen=True, kw_only=True):
    """One state of another service's namespace."""

    incarnation: int
    seq: int
    state: dict[str, Any]


class SchedulerValue(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler that lives."""

    at: int
    """When it said so, microseconds since the epoch: for people to read, not for deciding who lives."""
    host: str = ""
    """Where it runs; empty when a release wrote it that did not tell."""


KINDS: dict[str, type[Any]] = {
    COMPUTE: ComputeValue,
    GROUPS: GroupValue,
    OPERATOR: HostIntent,
    AGGREGATES: AggregatePage,
    CELLS: CellValue,
    BEATS: BeatValue,
    SCHEDULERS: SchedulerValue,
    NAMESPACES: Namespace,
    STATES: StateValue,
    HEARING: HearingValue,
}
"""Which kind of value each namespace holds."""


class Unreadable(msgspec.DecodeError):
    """A record cannot be understood; the text says why."""


_encoder = msgspec.json.Encoder()
_decoders = {
    namespace: json_decoder(tuple[str, int, kind])  # type: ignore[valid-type]  # built from the table above
    for namespace, kind in KINDS.items()
}


def beat_key(cell: CellUuid, conductor: str) -> Key:
    """Return the key of the beat of one conductor of a cell."""
    return Key(BEATS, f"{cell}/{conductor}")


def hearing_key(cell: CellUuid, conductor: str, page: int) -> Key:
    """Return the key of a page of the nodes that one conductor of a cell hears."""
    return Key(HEARING, f"{cell}/{conductor}/{page}")


def aggregate_key(number: int, page: int = 0) -> Key:
    """Return the key of a page of an aggregate."""
    return Key(AGGREGATES, f"{number}/{page}" if page else str(number))


def state_key(namespace: str, key: str) -> Key:
    """Return the key of the record of another service's state."""
    return Key(STATES, f"{namespace}/{key}")


def encode(epoch: str, generation: int, value: Any) -> bytes:
    """Return the bytes of a record that will have this generation; None makes the empty body that removes it."""
    return b"" if value is None else _encoder.encode((epoch, generation, value))


def decode(epoch: str, record: Record) -> Any:
    """Return the value; None when the record was removed, belongs to another epoch, or its namespace is none of ours.

    Raises Unreadable when the bytes are no such value, or say that they are of another generation.
    """
    decoder = _decoders.get(record.key.namespace)
    if decoder is None or not record.body:
        return None
    try:
        written_in, generation, value = decoder.decode(record.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"no value of this namespace: {error}") from error
    if written_in != epoch:
        return None
    if generation != record.generation:
        raise Unreadable(f"its body has generation {generation}, the backend has {record.generation}")
    return value
