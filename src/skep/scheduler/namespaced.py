"""Namespaces of other services: which there are, and the states that their services write into them."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable

import msgspec
import structlog

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound
from skep.domain.namespaces import Schema, key_fault, namespace_fault, state_fault
from skep.messages.base import Done
from skep.messages.to_scheduler import ReleaseReply
from skep.messages.to_scheduler_namespaces import (
    GetNamespaceStates,
    GetNamespaceStatesReply,
    NamespaceState,
    PublishNamespaces,
    RemoveNamespaceStates,
    StateAnswer,
    StateUpdate,
    UpdateNamespaceStates,
    UpdateNamespaceStatesReply,
)
from skep.scheduler import changes
from skep.scheduler.changes import Change, Changing
from skep.scheduler.commits import Commits
from skep.scheduler.records import NAMESPACES, STATES, StateValue, state_key
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key
from skep.transport.base import Handlers

MAX_PAGE = 1000
PAGE_BYTES = 512 * 1024
"""A page ends with the state that makes it larger; a message carries 1 MiB."""
MAX_NUMBER = 2**63 - 1
MISSING_SECONDS = 20.0
"""States whose namespace was missing for so long go."""

log = structlog.get_logger("skep.scheduler")
_encoder = msgspec.msgpack.Encoder()


class Namespaced:
    """What a scheduler answers about the namespaces of other services."""

    def __init__(self, states: HostStates, commits: Commits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._states = states
        self._commits = commits
        self._monotonic = monotonic
        self._missing: dict[str, float] = {}

    @property
    def handlers(self) -> Handlers:
        """One for each message of `messages/to_scheduler_namespaces.py`."""
        return {
            PublishNamespaces: self._publish,
            UpdateNamespaceStates: self._update,
            RemoveNamespaceStates: self._remove,
            GetNamespaceStates: self._get,
        }

    async def _publish(self, message: PublishNamespaces, _: RequestContext | None) -> Done:
        await publish_namespaces(self._states, self._commits, message, self._missing, self._monotonic())
        return Done()

    async def _update(self, message: UpdateNamespaceStates, _: RequestContext | None) -> UpdateNamespaceStatesReply:
        return await update_states(self._states, self._commits, message)

    async def _remove(self, message: RemoveNamespaceStates, _: RequestContext | None) -> ReleaseReply:
        return ReleaseReply(released=await remove_states(self._commits, message))

    async def _get(self, message: GetNamespaceStates, _: RequestContext | None) -> GetNamespaceStatesReply:
        return read_states(self._states, message)


async def publish_namespaces(
    states: HostStates, commits: Commits, message: PublishNamespaces, missing: dict[str, float], now: float
) -> None:
    """Make the records say exactly which namespaces there are; states of others go.

    `missing`: since when, by the monotonic clock, states were seen whose namespace is not there.

    Raises BadRequest naming what a namespace may not be.
    """
    for one in message.namespaces:
        if (fault := namespace_fault(one.name, one.schema)) is not None:
            raise BadRequest(f"namespace {one.name[:80]!r}: {fault}")
    # Records that agree in memory may be gone from the backend, with another epoch begun.
    await commits.look()
    values = {Key(NAMESPACES, one.name): one for one in message.namespaces}
    names = {one.name for one in message.namespaces}
    gone = [key for key in states.keys(NAMESPACES) if key not in values]
    strays: dict[str, list[Key]] = {}
    for key in states.keys(STATES):
        name = key.name.partition("/")[0]
        if name not in names:
            strays.setdefault(name, []).append(key)
    for name in [name for name in missing if name not in strays]:
        del missing[name]
    stray = [
        key
        for name, keys in strays.items()
        if name in message.removed or now - missing.setdefault(name, now) >= MISSING_SECONDS
        for key in keys
    ]
    if gone or stray:
        log.info("namespaces removed", namespaces=[key.name for key in gone], states=len(stray))
    await asyncio.gather(
        *(commits.change(key, changes.set_value(value)) for key, value in values.items()),
        *(commits.change(key, changes.set_value(None)) for key in (*gone, *stray)),
    )


async def update_states(
    states: HostStates, commits: Commits, message: UpdateNamespaceStates
) -> UpdateNamespaceStatesReply:
    """Store each state that its schema allows and that is not older than its record, all in one round trip."""
    schema = states.table.joined.schema(message.namespace)
    if schema is None:
        return UpdateNamespaceStatesReply(answers=(), epoch=states.epoch, known=False)
    count = states.table.joined.count(message.namespace)
    new: set[str] = set()
    answers = []
    for update in message.updates:
        refused = _fault(schema, update)
        if refused is None and states.held(state_key(message.namespace, update.key)).value is None:
            new.add(update.key)
            if count + len(new) > schema.max_states:
                refused = f"key: the namespace holds {schema.max_states} states already"
        answers.append(_update(states, commits, message.namespace, update, refused))
    return UpdateNamespaceStatesReply(answers=tuple(await asyncio.gather(*answers)), epoch=states.epoch)


def _fault(schema: Schema, update: StateUpdate) -> str | None:
    for name, number in (("incarnation", update.incarnation), ("seq", update.seq)):
        if not 0 <= number <= MAX_NUMBER:
            return f"{name}: expected an integer within 0 and 2^63-1"
    return key_fault(update.key) or state_fault(schema, update.state)


async def _update(
    states: HostStates, commits: Commits, namespace: str, update: StateUpdate, refused: str | None
) -> StateAnswer:
    if refused is not None:
        return StateAnswer(key=update.key, refused=refused)
    key = state_key(namespace, update.key)
    stored = await commits.change(key, set_state(update))
    if stored.answer is not None:
        return StateAnswer(key=update.key, refused=stored.answer, stale=True)
    return StateAnswer(key=update.key, generation=states.held(key).generation)


def set_state(update: StateUpdate) -> Changing[str | None]:
    """Set a state unless the record is of a later (incarnation, seq); answer why not."""

    def change(value: StateValue | None) -> Change[str | None]:
        if value is not None:
            held, told = (value.incarnation, value.seq), (update.incarnation, update.seq)
            if told < held:
                return Change(value, f"seq: {_number(told)} is older than {_number(held)}, which is stored")
            if told == held:
                same = value.state == update.state
                return Change(value, None if same else f"seq: another state is stored under {_number(held)}")
        return Change(StateValue(incarnation=update.incarnation, seq=update.seq, state=update.state), None)

    return change


def _number(pair: tuple[int, int]) -> str:
    return f"(incarnation {pair[0]}, seq {pair[1]})"


async def remove_states(commits: Commits, message: RemoveNamespaceStates) -> int:
    """Remove states; return how many there were. One that this scheduler does not know may be another's of just now."""
    freed = await _remove(commits, message.namespace, message.keys)
    missed = tuple(key for key, found in zip(message.keys, freed, strict=True) if not found)
    if missed:
        await commits.look()
        freed += await _remove(commits, message.namespace, missed)
    return sum(freed)


async def _remove(commits: Commits, namespace: str, keys: tuple[str, ...]) -> list[bool]:
    stored = await asyncio.gather(*(commits.change(state_key(namespace, key), _gone) for key in keys))
    return [one.answer for one in stored]


def _gone(value: StateValue | None) -> Change[bool]:
    return Change(None, answer=value is not None)


def read_states(states: HostStates, message: GetNamespaceStates) -> GetNamespaceStatesReply:
    """Return a page of states. Raises NotFound for a namespace that is not known, BadRequest for a bad limit."""
    joined = states.table.joined
    if joined.schema(message.namespace) is None:
        raise NotFound(f"There is no namespace {message.namespace[:80]!r}.")
    limit = MAX_PAGE if message.limit is None else message.limit
    if not 1 <= limit <= MAX_PAGE:
        raise BadRequest(f"limit: expected 1 to {MAX_PAGE}")
    keys = joined.keys(message.namespace)
    if message.keys is not None:
        known = set(message.keys)
        keys = sorted(key for key in known if states.held(state_key(message.namespace, key)).value is not None)
    found: list[NamespaceState] = []
    size = 0
    for key in keys[bisect_right(keys, message.marker) if message.marker is not None else 0 :]:
        if len(found) == limit or size > PAGE_BYTES:
            return GetNamespaceStatesReply(states=tuple(found), epoch=states.epoch, next_marker=found[-1].key)
        held = states.held(state_key(message.namespace, key))
        one = NamespaceState(
            key=key,
            incarnation=held.value.incarnation,
            seq=held.value.seq,
            state=held.value.state,
            generation=held.generation,
            nodes=joined.nodes_of(message.namespace, key),
        )
        size += len(_encoder.encode(one))
        found.append(one)
    return GetNamespaceStatesReply(states=tuple(found), epoch=states.epoch)
