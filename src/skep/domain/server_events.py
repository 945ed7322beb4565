"""Events of the event log: their types, and how facts of a cell become events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skep.domain.builds import Explanation
from skep.domain.ids import CellUuid
from skep.domain.instances import Fault, State

REQUESTED = "server.requested"
HOST_CHOSEN = "server.host_chosen"
NO_HOST = "server.no_host"
ATTEMPT_FAILED = "server.attempt_failed"
ACTIVE = "server.active"
ERROR = "server.error"
DELETED = "server.deleted"
STATE_CHANGED = "server.state_changed"
MOVED_HOST = "server.moved_host"
MOVED_CELL = "server.moved_cell"
ACTION_BEGUN = "action.begun"
ACTION_ENDED = "action.ended"
ACTION_FAILED = "action.failed"
UNREADABLE = "event.unreadable"

GIVEN_UP = "given_up"
"""Outcome of an open attempt beside the one that holds the server: its host is to undo it, and it alone."""
REPLACED = "InstanceReplaced"
"""What a host names as the error of an attempt that it undid because it was told to."""
REFUSED = "refused"
"""Outcome of an attempt for which hosts were found, and what it needs beside a host could not be had."""


class EventKind(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one type of events."""

    name: str
    when: str
    data: tuple[str, ...] = ()
    """What `data` holds."""
    hidden: tuple[str, ...] = ()
    """What `data` holds for administrators alone."""


TABLE: tuple[EventKind, ...] = (
    EventKind(name=REQUESTED, when="a create is stored"),
    EventKind(
        name=HOST_CHOSEN,
        when="a host holds the claim of an attempt: of a build, a move, an evacuation or an unshelve",
        data=("considered",),
        hidden=("scores", "preferred"),
    ),
    EventKind(name=NO_HOST, when="a decision found no host", data=("considered", "reason")),
    EventKind(
        name=ATTEMPT_FAILED,
        when="an attempt ended without its guest, or was given up before it had one; a delete ends the attempts of its "
        "server like that",
        data=("outcome", "error"),
        hidden=("message",),
    ),
    EventKind(name=ACTIVE, when="the server becomes ACTIVE", data=("before",)),
    EventKind(name=ERROR, when="the server becomes ERROR", data=("before", "code", "reason"), hidden=("details",)),
    EventKind(name=DELETED, when="nothing is left of the server", data=("before",)),
    EventKind(name=STATE_CHANGED, when="the server comes to another lasting state", data=("before", "state")),
    EventKind(name=MOVED_HOST, when="the server that was built is on another host of its cell", hidden=("from_host",)),
    EventKind(name=MOVED_CELL, when="another cell has the server", hidden=("from_cell",)),
    EventKind(name=ACTION_BEGUN, when="an action on a server is stored", data=("action",)),
    EventKind(name=ACTION_ENDED, when="a part of an action ended well", data=("action",)),
    EventKind(name=ACTION_FAILED, when="a part of an action failed", data=("action", "reason")),
    EventKind(
        name=UNREADABLE,
        when="what a cell noted cannot be read: its record is damaged, or a newer release noted it",
        data=("kind",),
        hidden=("what", "detail", "message"),
    ),
)
"""All types of events."""

TYPES = frozenset(row.name for row in TABLE)


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell noted of a server in the transaction that made it true."""

    id: int
    fact_key: str
    at: int
    kind: str
    """`state`, `host`, `chosen`, `attempt`, `begun` or `ended`."""
    instance: str
    project_id: str
    user_id: str
    request_id: str | None = None
    attempt: int | None = None
    host: str | None = None
    what: str | None = None
    detail: str | None = None
    text: str | None = None
    fault: Fault | None = None
    explanation: Explanation | None = None
    """Of the decision that chose the host."""
    built_at: int | None = None
    """Of an attempt: when its host had built it; None: it did not, or a release before 0.8 wrote it."""
    damaged: bool = False
    """Whether something of it could not be read."""


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has no place in the order yet."""

    event_key: str
    time: int
    type: str
    instance: str
    project_id: str
    user_id: str | None
    request_id: str | None
    cell: str | None
    host: str | None
    attempt: int | None
    data: Mapping[str, Any]
    hidden: Mapping[str, Any]


def is_news(fact: Fact) -> bool:
    """Tell whether a fact becomes an event.

    A build that was refused its ports or volumes chose no host, and missed none: the server's ERROR says why. Nothing
    failed of a guest that was built and that its host undoes because the server is elsewhere now, or on no host.
    """
    if fact.damaged:
        return True
    if fact.kind == "attempt":
        left = fact.what == GIVEN_UP or (fact.what, fact.detail) == ("undone", REPLACED)
        return fact.built_at is None or not left
    return not (fact.kind == "chosen" and fact.what == REFUSED)


def event_of(fact: Fact, cell: CellUuid) -> NewEvent:
    """Return the event that a fact of a cell becomes; a fact that cannot be read becomes one that says so."""
    tell = _unreadable if fact.damaged else _TELL.get(fact.kind, _unreadable)
    kind, data, hidden = tell(fact)
    return NewEvent(
        event_key=fact.fact_key,
        time=fact.at,
        type=kind,
        instance=fact.instance,
        project_id=fact.project_id,
        user_id=fact.user_id,
        request_id=fact.request_id,
        cell=cell,
        host=fact.host,
        attempt=fact.attempt,
        data={name: value for name, value in data.items() if value is not None},
        hidden={name: value for name, value in hidden.items() if value is not None},
    )


_Told = tuple[str, dict[str, Any], dict[str, Any]]


def _state(fact: Fact) -> _Told:
    before = {"before": fact.detail}
    if fact.what == State.ERROR:
        fault = fact.fault
        if fault is None:
            return ERROR, before, {}
        return ERROR, {**before, "code": fault.code, "reason": fault.message}, {"details": fault.details}
    if fact.what == State.ACTIVE:
        return ACTIVE, before, {}
    if fact.what == State.DELETED:
        return DELETED, before, {}
    return STATE_CHANGED, {**before, "state": fact.what}, {}


def _host(fact: Fact) -> _Told:
    return MOVED_HOST, {}, {"from_host": fact.what}


def _chosen(fact: Fact) -> _Told:
    why = fact.explanation
    considered = None if why is None else why.considered
    if fact.host is None:
        return NO_HOST, {"considered": considered, "reason": None if why is None else why.summary()}, {}
    if why is None:
        return HOST_CHOSEN, {}, {}
    return (
        HOST_CHOSEN,
        {"considered": considered},
        {"scores": why.scores.get(fact.host), "preferred": why.preferred or None},
    )


def _attempt(fact: Fact) -> _Told:
    return ATTEMPT_FAILED, {"outcome": fact.what, "error": fact.detail}, {"message": fact.text}


def _begun(fact: Fact) -> _Told:
    return ACTION_BEGUN, {"action": fact.what}, {}


def _ended(fact: Fact) -> _Told:
    if fact.detail == "Error":
        return ACTION_FAILED, {"action": fact.what, "reason": fact.text}, {}
    return ACTION_ENDED, {"action": fact.what}, {}


def _unreadable(fact: Fact) -> _Told:
    return UNREADABLE, {"kind": fact.kind}, {"what": fact.what, "detail": fact.detail, "message": fact.text}


_TELL = {
    "state": _state,
    "host": _host,
    "chosen": _chosen,
    "attempt": _attempt,
    "begun": _begun,
    "ended": _ended,
}
