"""The port that carries messages, and the words that every adapter shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NewType, Protocol, TypeVar

from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid
from skep.messages.base import Call, Cast

ReplyT = TypeVar("ReplyT")

Address = NewType("Address", str)
"""The receiver, in dotted words: `super_conductor`, `scheduler`, `cell.CELL.conductor`, `cell.CELL.compute.HOST`.

`cell.CELL.scheduler` and `cell.CELL.super_conductor` are the addresses of schedulers and super conductors for one cell,
for messages about that cell only. A process of a cell gets no other address above the cells.
"""

SUPER_CONDUCTOR = Address("super_conductor")
SCHEDULER = Address("scheduler")


def cell_conductor(cell: str) -> Address:
    """Return the address of the conductors of the cell with this UUID."""
    return Address(f"cell.{cell}.conductor")


def compute(cell: str, host: str) -> Address:
    """Return the address of the agent on `host` of the cell with this UUID."""
    return Address(f"cell.{cell}.compute.{host}")


def scheduler_for(cell: str) -> Address:
    """Return the address by which the cell with this UUID reaches the schedulers."""
    return Address(f"cell.{cell}.{SCHEDULER}")


def super_conductor_for(cell: str) -> Address:
    """Return the address by which the cell with this UUID reaches the super conductors."""
    return Address(f"cell.{cell}.{SUPER_CONDUCTOR}")


Handler = Callable[[Any, RequestContext | None], Awaitable[Any]]
"""Takes a message and its sender; returns the reply of a call, nothing for a cast."""

Handlers = Mapping[type[Any], Handler]
"""One handler for each type of message that an address takes."""


CellHandler = Callable[[CellUuid, Any, RequestContext | None], Awaitable[Any]]
"""As `Handler`, with the sender's cell: the transport vouches for it, whatever the message contains."""

CellHandlers = Mapping[type[Any], CellHandler]


class Subscription(Protocol):
    """A served address."""

    async def close(self) -> None:
        """Take no more messages; wait for those under way."""


class Transport(Protocol):
    """Carries encoded messages between processes. At most once; nothing is kept."""

    @property
    def proves_senders(self) -> bool:
        """Whether messages never leave this process, so that `speaker.proven_speaker` can be believed."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew."""

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint. Returns when it is on its way; a missing receiver is no error."""

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Send a call and wait for its answer.

        Raises Unreachable when no answer came within `timeout` seconds or no process serves the address. Errors of
        `skep.domain.errors` that the handler raised are raised again with their text.
        """

    async def serve(self, address: Address, handlers: Handlers) -> Subscription:
        """Take messages for `address`; several servers of one address share them (a queue group)."""

    async def serve_cells(self, role: Address, handlers: CellHandlers) -> Subscription:
        """Take messages for `cell.CELL.ROLE` of every cell, of those too that come later, as `serve` does."""
