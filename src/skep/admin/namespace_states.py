"""States that other services write into their namespaces, through schedulers: only these write records."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.admin import namespaces
from skep.admin.answers import AnsweredState, AnsweredStates, DeletedState, ListedStates, ShownRefusal, StoredState
from skep.admin.requests import AdminRequest, operation, takes
from skep.domain.errors import BadRequest, NotFound, Unavailable
from skep.domain.namespaces import Namespace, key_fault, state_fault
from skep.http.operations import STRING, whole
from skep.messages.to_scheduler_namespaces import (
    GetNamespaceStates,
    GetNamespaceStatesReply,
    RemoveNamespaceStates,
    StateAnswer,
    StateUpdate,
    UpdateNamespaceStates,
    UpdateNamespaceStatesReply,
)
from skep.transport.base import SCHEDULER

MOST_STATES = 1000
"""States in one request."""
MAX_NUMBER = 2**63 - 1


class StateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One state as its service sends it."""

    key: str
    incarnation: int
    """Which life of the service tells it, for instance when it started."""
    seq: int
    """Which of its tellings it is."""
    state: dict[str, Any]


class StatesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `PUT /namespaces/{name}/states`."""

    states: tuple[StateBody, ...]


@takes(StatesBody)
async def update(request: AdminRequest, body: StatesBody) -> AnsweredStates:
    """Store states; one that is refused does not touch the others.

    The epoch of the answer says in which life of the schedulers' data they are stored: under another one than before
    everything has to be written again.
    """
    namespace = await namespaces.named(request)
    if not 1 <= len(body.states) <= MOST_STATES:
        raise BadRequest(f"states: expected 1 to {MOST_STATES}, got {len(body.states)}.")
    # What the schema does not allow could be more than a message can carry.
    faults = [_fault(namespace, one) for one in body.states]
    updates = tuple(
        StateUpdate(key=one.key, incarnation=one.incarnation, seq=one.seq, state=one.state)
        for one, fault in zip(body.states, faults, strict=True)
        if fault is None
    )
    reply = await _store(request, namespace, updates)
    stored = iter(reply.answers)
    answers = [
        next(stored) if fault is None else StateAnswer(key=one.key[:128], refused=fault)
        for one, fault in zip(body.states, faults, strict=True)
    ]
    return {
        "epoch": reply.epoch,
        "accepted": sum(answer.refused is None for answer in answers),
        "states": [_answer(namespace.name, answer) for answer in answers],
    }


def _fault(namespace: Namespace, one: StateBody) -> str | None:
    for name, number in (("incarnation", one.incarnation), ("seq", one.seq)):
        if not 0 <= number <= MAX_NUMBER:
            return f"{name}: expected an integer within 0 and 2^63-1"
    return key_fault(one.key) or state_fault(namespace.schema, one.state)


async def _store(
    request: AdminRequest, namespace: Namespace, updates: tuple[StateUpdate, ...]
) -> UpdateNamespaceStatesReply:
    """Have a scheduler store them. One that does not know the namespace in this epoch is told of it first."""
    message = UpdateNamespaceStates(namespace=namespace.name, updates=updates)
    reply = await request.services.transport.call(SCHEDULER, message)
    if not reply.known:
        await namespaces.publish(request.services)
        reply = await request.services.transport.call(SCHEDULER, message)
    if not reply.known:
        raise Unavailable(f"The schedulers do not know the namespace {namespace.name} yet.")
    return reply


def _answer(namespace: str, answer: StateAnswer) -> StoredState:
    if answer.refused is None:
        return {"key": answer.key, "generation": answer.generation, "refused": None}
    field, _, reason = answer.refused.partition(": ")
    why: ShownRefusal = {
        "namespace": namespace,
        "key": answer.key,
        "field": field,
        "reason": reason,
        "stale": answer.stale,
    }
    return {"key": answer.key, "generation": None, "refused": why}


@operation(query={"key": STRING, "limit": whole(1, MOST_STATES), "marker": STRING})
async def index(request: AdminRequest) -> ListedStates:
    """Answer a page of states in the order of their keys."""
    namespace = await namespaces.named(request)
    keys = request.queries.get("key")
    reply = await _read(
        request,
        GetNamespaceStates(
            namespace=namespace.name,
            keys=keys,
            limit=request.number("limit") or 100,
            marker=request.query.get("marker"),
        ),
    )
    return {"states": reply.states, "epoch": reply.epoch, "next_marker": reply.next_marker}


@operation()
async def show(request: AdminRequest) -> AnsweredState:
    """Answer one state."""
    namespace, key = await namespaces.named(request), request.params["key"]
    reply = await _read(request, GetNamespaceStates(namespace=namespace.name, keys=(key,)))
    if not reply.states:
        raise _missing(namespace, key)
    return {"state": reply.states[0], "epoch": reply.epoch}


@operation()
async def delete(request: AdminRequest) -> DeletedState:
    """Remove one state."""
    namespace, key = await namespaces.named(request), request.params["key"]
    message = RemoveNamespaceStates(namespace=namespace.name, keys=(key,))
    if not (await request.services.transport.call(SCHEDULER, message)).released:
        raise _missing(namespace, key)
    return {"state": {"key": key, "deleted": True}}


async def _read(request: AdminRequest, message: GetNamespaceStates) -> GetNamespaceStatesReply:
    """Read a page; a scheduler that does not know the namespace in this epoch has no state of it either."""
    try:
        return await request.services.transport.call(SCHEDULER, message)
    except NotFound:
        await namespaces.publish(request.services)
    return await request.services.transport.call(SCHEDULER, message)


def _missing(namespace: Namespace, key: str) -> NotFound:
    return NotFound(f"The namespace {namespace.name} has no state {key[:80]!r}.")
