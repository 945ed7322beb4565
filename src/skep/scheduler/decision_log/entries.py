"""One line of a decision log.

A segment begins with a header and a snapshot: the records (`Kept`), then what stands in none (`Known`). After it come
changes and decisions in the order in which the scheduler applied them, so that its knowledge at any moment is a fold
over the lines before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.builds import StageCount
from skep.domain.claims import Claim
from skep.domain.decoding import json_decoder
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import SelectDestinations
from skep.placement.hosts.hearing import HeardState
from skep.placement.settings import SchedulerSettings
from skep.placement.unrecorded import Unrecorded
from skep.scheduler.records import KINDS

SCHEMA = 2
"""Raised when lines of an older log can no longer be read, or the same request would be decided otherwise."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """The first line of a segment."""

    schema: int
    release: str
    run: str
    """The scheduler's life."""
    segment: int
    at: int
    """When it began, microseconds since the epoch."""
    settings: SchedulerSettings


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    """A record that the snapshot found."""

    namespace: str
    name: str
    value: Any


class Known(msgspec.Struct, frozen=True, kw_only=True, tag="known"):
    """The end of the snapshot: what stands in no record."""

    unrecorded: Unrecorded
    heard: tuple[HeardState, ...]


class Applied(msgspec.Struct, frozen=True, array_like=True, tag="applied", gc=False):
    """A record changed; without a value: it went."""

    namespace: str
    name: str
    now: float | None
    """The monotonic clock; None where the change is of no known age."""
    value: Any


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="epoch"):
    """Another epoch began."""

    epoch: str


class Observed(msgspec.Struct, frozen=True, array_like=True, tag="observed"):
    """It was looked what is too old by now, a reading of the monotonic clock."""

    now: float


class Shared(msgspec.Struct, frozen=True, array_like=True, tag="shared"):
    """The hosts were shared anew between this scheduler and others."""

    run: str
    others: tuple[str, ...]


class LoggedRequest(msgspec.Struct, frozen=True, array_like=True, tag="asked"):
    """A request, named by a number of this log. It stands in each segment that decides about it."""

    number: int
    message: SelectDestinations
    seed: int


class LoggedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What one decision found."""

    claim: Claim | None
    """None: no host."""
    alternates: tuple[NodeUuid, ...]
    considered: int
    stages: tuple[StageCount, ...]
    reason: str = ""
    """Why nobody could be judged; empty where hosts were."""


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """One member of a request was decided; a choice counts from now on."""

    number: int
    member: int
    shunned: tuple[NodeUuid, ...]
    """Where the member's group had no place for it."""
    answer: LoggedAnswer


class Found(msgspec.Struct, frozen=True, array_like=True, tag="found"):
    """One member's attempt had a claim, which it keeps."""

    number: int
    member: int
    node: NodeUuid
    alternates: tuple[NodeUuid, ...]
    considered: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag="dropped"):
    """A choice counts no longer, unless a record holds it."""

    number: int
    member: int
    node: NodeUuid


class EndedRequest(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A request is over: none of its choices counts any longer, unless a record holds it."""

    number: int
    nodes: tuple[NodeUuid | None, ...]
    """Of the choices, by member."""


Entry = (
    Header
    | Kept
    | Known
    | Applied
    | Begun
    | Observed
    | Shared
    | LoggedRequest
    | Decided
    | Found
    | Dropped
    | EndedRequest
)

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    str(kind.__struct_config__.tag): json_decoder(kind)
    for kind in (Header, Known, Begun, Observed, Shared, LoggedRequest, Decided, Found, Dropped, EndedRequest)
}
_kept = json_decoder(tuple[str, str, str, msgspec.Raw])
_applied = json_decoder(tuple[str, str, str, float | None, msgspec.Raw])
_values: dict[str, msgspec.json.Decoder[Any]] = {
    namespace: json_decoder(kind | None) for namespace, kind in KINDS.items()
}


class UnreadableLine(ValueError):
    """A line is none of a decision log that this release reads."""


def encode(entry: Entry) -> bytes:
    """Return one line, without its end."""
    return _encoder.encode(entry)


def decode(line: bytes) -> Entry:
    """Return the entry of one line. Raises Unreadable saying what is wrong with it."""
    tag = _tag(line)
    try:
        if tag == "applied":
            _, namespace, name, now, value = _applied.decode(line)
            return Applied(namespace, name, now, _value(namespace, value))
        if tag == "kept":
            _, namespace, name, value = _kept.decode(line)
            return Kept(namespace, name, _value(namespace, value))
        if tag in _decoders:
            entry: Entry = _decoders[tag].decode(line)
            return entry
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableLine(f"a line of the kind {tag!r} cannot be read: {error}") from error
    raise UnreadableLine(f"expected a line of a decision log, got {line[:20]!r}")


def _tag(line: bytes) -> str:
    """Return the kind of a line: `["kind",...` or `{"type":"kind",...`."""
    for prefix in (b'["', b'{"type":"'):
        if line.startswith(prefix):
            return line[len(prefix) : line.find(b'"', len(prefix))].decode(errors="replace")
    return ""


def _value(namespace: str, value: msgspec.Raw) -> Any:
    """Return the value of a record; None also for one of a namespace that this release does not know."""
    decoder = _values.get(namespace)
    return decoder.decode(value) if decoder is not None else None
