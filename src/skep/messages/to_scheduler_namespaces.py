"""Messages to schedulers about namespaces of other services; the other messages are in `to_scheduler.py`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from skep.domain.ids import NodeUuid
from skep.domain.namespaces import Namespace
from skep.messages.base import Call, Done
from skep.messages.to_scheduler import ReleaseReply


class PublishNamespaces(Call[Done], frozen=True, kw_only=True):
    """Set all namespaces of other services: the whole of them, from rows of the API database.

    The states of a namespace that is not among them go once it has been missing for a while: a message that was on its
    way while a namespace was registered does not know it yet.
    """

    wire_name: ClassVar[str] = "PublishNamespaces"
    reply_type: ClassVar[Any] = Done
    namespaces: tuple[Namespace, ...]
    removed: tuple[str, ...] = ()
    """Namespaces whose states are removed at once."""


class StateUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One state as its service publishes it. (incarnation, seq) orders the states of a key."""

    key: str
    incarnation: int
    seq: int
    state: dict[str, Any]


class StateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one state."""

    key: str
    generation: int = 0
    """The generation of its record; 0: the state was refused."""
    refused: str | None = None
    """Why it was refused, beginning with the field's name."""
    stale: bool = False
    """The state was refused because the record has a later (incarnation, seq)."""


class UpdateNamespaceStatesReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer for each state, in their order, and the epoch in which they were stored."""

    answers: tuple[StateAnswer, ...]
    epoch: str
    """If it changed, all earlier states are gone: the service has to write them again."""
    known: bool = True
    """False: the namespace is not known in this epoch yet; nothing was done."""


class UpdateNamespaceStates(Call[UpdateNamespaceStatesReply], frozen=True, kw_only=True):
    """Set states of a namespace, each by compare-and-swap; a refused state does not affect the others."""

    wire_name: ClassVar[str] = "UpdateNamespaceStates"
    reply_type: ClassVar[Any] = UpdateNamespaceStatesReply
    namespace: str
    updates: tuple[StateUpdate, ...]


class RemoveNamespaceStates(Call[ReleaseReply], frozen=True, kw_only=True):
    """Remove states of a namespace. A missing state is no error."""

    wire_name: ClassVar[str] = "RemoveNamespaceStates"
    reply_type: ClassVar[Any] = ReleaseReply
    namespace: str
    keys: tuple[str, ...]


class NamespaceState(msgspec.Struct, frozen=True, kw_only=True):
    """One state as the record holds it, and its nodes."""

    key: str
    incarnation: int
    seq: int
    state: dict[str, Any]
    generation: int
    nodes: tuple[NodeUuid, ...] = ()
    """The known nodes that it joins."""


class GetNamespaceStatesReply(msgspec.Struct, frozen=True, kw_only=True):
    """States in the order of their keys."""

    states: tuple[NamespaceState, ...]
    epoch: str
    next_marker: str | None = None
    """There are more after this key."""


class GetNamespaceStates(Call[GetNamespaceStatesReply], frozen=True, kw_only=True):
    """Read the states of a namespace, a page at a time."""

    wire_name: ClassVar[str] = "GetNamespaceStates"
    reply_type: ClassVar[Any] = GetNamespaceStatesReply
    namespace: str
    keys: tuple[str, ...] | None = None
    limit: int | None = None
    marker: str | None = None
