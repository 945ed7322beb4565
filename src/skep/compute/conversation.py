"""What an agent and its cell's conductors say to each other, so that each knows the other: a session for each run.

A registration begins it: the agent signs with its host's key, the answer is sealed with keys that only the cell's
conductors can derive. The cell's key is known since the enrolment, or is the one that the first registration showed;
once it is known, nothing that is not of that cell is believed. Where the transport proves senders nothing is sealed.

Conductors of a release without sessions are spoken to as that release does, until the cell has shown a key.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from skep.compute.identity import HostIdentity
from skep.domain.context import RequestContext
from skep.domain.decoding import msgpack_decoder
from skep.domain.errors import SkepError, StaleAgent, Unauthenticated, Unavailable, UnknownSession, Unreachable
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CellUuid, Incarnation
from skep.domain.sessions import MARK_BYTES, Numbers, Session, new_exchange_key, open_by_run, public_half
from skep.domain.signatures import Signer, new_challenge
from skep.domain.timelines import Moment
from skep.messages.base import Call, Cast
from skep.messages.to_cell_conductor import (
    AgentCall,
    AgentCast,
    RegisterAgent,
    Registration,
    ReportHost,
    SignedReport,
    Welcome,
)
from skep.messages.to_compute import ConductorHello, Order, ReportHostNow
from skep.telemetry import tracing
from skep.transport import codec
from skep.transport.base import Handler, Handlers, Transport, cell_conductor
from skep.transport.speaker import Speaker, speaking

ReplyT = TypeVar("ReplyT")
log = structlog.get_logger("skep.compute")

ECHOED: Final = 20
"""In so many messages the mark of a conductor is shown after it greeted: one of them reaches it."""
CONDUCTORS = 256
"""Conductors whose orders are counted; the longest silent is forgotten first."""

_welcome = msgpack_decoder(Welcome)


class Conversation:
    """One run of an agent speaks, and hears."""

    def __init__(
        self,
        transport: Transport,
        cell: CellUuid,
        identity: HostIdentity,
        process: Incarnation,
        keep: Callable[[bytes], Awaitable[None]],
        *,
        take_next: Callable[[bytes], Awaitable[None]] | None = None,
        require_proof: bool = True,
    ) -> None:
        """`keep` writes the cell's key beside the identity, durably, before it is relied on.

        `take_next` writes that the host's next key is its key now. Without it none is brought.

        Without `require_proof` conductors of a release without sessions are believed even where the cell has a key.
        """
        self._require_proof = require_proof
        self._transport = transport
        self._address = cell_conductor(cell)
        self._cell = cell
        self._identity = identity
        self._run = AgentIdentity(node=identity.node, host=identity.host, process=process)
        self._signer = Signer(identity.seed, cell)
        self._keep = keep
        self._take_next = take_next
        self._next = Signer(identity.next_seed, cell) if identity.next_seed and take_next is not None else None
        self._cell_key = identity.cell_key
        self._exchange_key = new_exchange_key()
        self._session: Session | None = None
        self._signs_reports = False
        """Whether conductors of a release without sessions want reports signed."""
        self._number = 0
        self._began = time.monotonic()
        self._orders: dict[bytes, Numbers] = {}
        """Which orders of each conductor were taken."""
        self._echoes: dict[bytes, int] = {}
        """Marks that are shown, and in how many more messages."""
        self._refused: set[str] = set()
        self._understands: tuple[str, ...] = ()
        self.capabilities: tuple[str, ...] = ()
        """What the driver can do, as the registration says it."""
        """The wire names of the orders that the agent takes."""
        self.incarnation: int | None = None
        """The agent's number in its cell; None before it is registered."""
        self.on_greeted: Callable[[], None] = _nothing
        """Called when a conductor asks for a sign of life."""
        self.on_unknown: Callable[[], None] = _nothing
        """Called when the conductors do not know the session: the agent has to register anew."""

    @property
    def is_proven(self) -> bool:
        """Whether each side knows the other for sure, and goes on to."""
        return (self._session is not None and self._require_proof) or self._transport.proves_senders

    @property
    def _must_be_proven(self) -> bool:
        return bool(self._cell_key) and self._require_proof

    async def call(self, call: Call[ReplyT], timeout: float, context: RequestContext | None = None) -> ReplyT:
        """Ask once.

        Raises Unreachable when no answer came that can be believed, the error that a conductor answered, or
        Unauthenticated when whoever answered a registration is none of this cell.
        """
        if isinstance(call, RegisterAgent):
            answer: Any = await self._register(timeout, call.seen)
            return answer  # type: ignore[no-any-return]
        if self._transport.proves_senders:
            with speaking(self._speaker()):
                return await self._transport.call(self._address, call, timeout=timeout, context=context)
        if self._session is not None:
            return await self._call_sealed(self._session, call, timeout, context)
        self._must_not_be_registered_first()
        return await self._transport.call(self._address, self._signed(call), timeout=timeout, context=context)

    async def cast(self, cast: Cast) -> None:
        """Send a hint."""
        if self._transport.proves_senders:
            with speaking(self._speaker()):
                await self._transport.cast(self._address, cast)
        elif self._session is not None:
            values = self._sealed(self._session, "cast", codec.encode(cast, None))
            await self._transport.cast(self._address, AgentCast(**values))
        else:
            self._must_not_be_registered_first()
            await self._transport.cast(self._address, cast)

    def opened(self, about: tuple[object, ...], sealed: bytes) -> bytes | None:
        """Return what somebody above the cell has sealed for this run; None when it is for another."""
        return open_by_run(self._exchange_key, about, sealed)

    def taking(self, handlers: Handlers) -> Handlers:
        """Return what the agent's address takes: orders of its cell's conductors, for these handlers."""
        self._understands = tuple(sorted(kind.wire_name for kind in handlers))

        async def order(message: Order, _context: RequestContext | None) -> None:
            found = self._opened(message)
            if found is None:
                return
            inner, context, traceparent = found
            if isinstance(inner, ConductorHello):
                self._echoes[message.conductor] = ECHOED
                self.on_greeted()
            elif type(inner) in handlers:
                with tracing.message(inner.wire_name, traceparent, answered=False):
                    await handlers[type(inner)](inner, context)
            else:
                self._refuse(f"an order that this release does not know: {inner.wire_name}")

        taken: dict[type[Any], Handler] = {kind: self._in_clear(handler) for kind, handler in handlers.items()}
        # It says nothing and asks for no more than what comes by itself: whoever sends it has gained nothing.
        taken[ReportHostNow] = handlers[ReportHostNow]
        return {**taken, Order: order}

    # --- within --------------------------------------------------------------------------------------

    def _in_clear(self, handler: Handler) -> Handler:
        """Make a handler of orders that bear no proof: for conductors that cannot give one, and inside one process."""

        async def handle(message: Any, context: RequestContext | None) -> None:
            if self._must_be_proven and not self._transport.proves_senders:
                self._refuse(f"{message.wire_name} had no proof of a conductor of this cell")
                return
            await handler(message, context)

        return handle

    def _must_not_be_registered_first(self) -> None:
        """Keep what waits until there is a session, where conductors of this cell have them. Raises Unreachable."""
        if self._must_be_proven:
            raise Unreachable("the agent has not registered yet")

    def _speaker(self) -> Speaker:
        return Speaker(self._run.node, self._run.host, self.incarnation)

    def _signed(self, call: Call[Any]) -> Call[Any]:
        """Return a report as conductors of a release without sessions take it; other calls as they are."""
        if not (isinstance(call, ReportHost) and self._signs_reports):
            return call
        body = msgspec.msgpack.encode(call)
        return SignedReport(node=call.node, body=body, signature=self._signer.report(body))

    async def _register(self, timeout: float, seen: Moment | None) -> Registration:
        challenge, exchange = new_challenge(self._understands, self.capabilities), public_half(self._exchange_key)
        number = self._identity.runs
        asked = RegisterAgent(
            identity=self._run,
            public_key=self._signer.public_key,
            signature=self._signer.registration(self._run),
            number=number,
            incarnation=self.incarnation or 0,
            exchange_key=exchange,
            challenge=challenge,
            run_signature=self._signer.run(self._run, number, exchange, challenge, seen),
            seen=seen,
            understands=self._understands,
            capabilities=self.capabilities,
        )
        if self._next is not None:
            asked = msgspec.structs.replace(
                asked,
                next_key=self._next.public_key,
                next_signature=self._signer.next_key(self._run, self._next.public_key),
                next_run_signature=self._next.run(self._run, number, exchange, challenge, seen),
            )
        try:
            with speaking(self._speaker()):
                answer = await self._transport.call(self._address, asked, timeout=timeout)
        except StaleAgent as error:
            # Anybody could have said that: the real ones say it in a welcome.
            raise Unreachable(f"the registration was not answered by a conductor of this cell: {error}") from None
        if not answer.cell_key:
            if self._must_be_proven:
                raise Unauthenticated("the answer to the registration is not signed by the cell's key")
            self._session = None
            self._signs_reports = answer.signed
            self.incarnation = answer.incarnation
            return answer
        session, welcome = self._welcomed(answer, challenge)
        if welcome.stale:
            raise StaleAgent("a younger run of this host's agent has registered")
        if not self._cell_key:
            await self._keep(answer.cell_key)
            self._cell_key = answer.cell_key
        if self._next is not None and welcome.bound_key == self._next.public_key:
            await self._become_next(self._next)
        self._session = session
        self.incarnation = welcome.incarnation
        self._hear(welcome.conductor)
        return Registration(
            incarnation=welcome.incarnation,
            mapped=welcome.mapped,
            signed=True,
            moment=welcome.moment,
            takes_tickets=welcome.takes_tickets,
        )

    async def _become_next(self, signer: Signer) -> None:
        assert self._take_next is not None
        await self._take_next(self._identity.next_seed)
        self._signer, self._next = signer, None
        log.info("key of this host replaced", host=self._run.host)

    def _welcomed(self, answer: Registration, challenge: bytes) -> tuple[Session, Welcome]:
        if self._cell_key and answer.cell_key != self._cell_key:
            raise Unauthenticated(
                "the answer to the registration has another key than the cell's: it is forged, or the cell's database "
                "was created again or restored to before it had this key; then enrol the host again (`skep enrol`)"
            )
        try:
            session = Session(self._exchange_key, answer.cell_key, self._cell, self._run)
            content = session.open_to_agent(("welcome", challenge), answer.welcome)
            if content is not None:
                return session, _welcome.decode(content)
        except (ValueError, msgspec.DecodeError) as error:
            raise Unauthenticated(f"the answer to the registration cannot be read: {error}") from error
        raise Unauthenticated("the answer to the registration is not signed by the cell's key")

    async def _call_sealed(
        self, session: Session, call: Call[ReplyT], timeout: float, context: RequestContext | None
    ) -> ReplyT:
        asked = AgentCall(**self._sealed(session, "call", codec.encode(call, context)))
        try:
            answer = await self._transport.call(self._address, asked, timeout=timeout)
        except UnknownSession:
            self.on_unknown()
            raise
        except Unavailable:
            raise
        except SkepError as error:
            # An error that is not sealed is nobody's word: it may only have the call repeated.
            if not self._require_proof:
                self.on_unknown()
            raise Unreachable(f"the answer is not by a conductor of this cell: {error}") from error
        content = session.open_to_agent(("answer", asked.number), answer.sealed)
        if content is None:
            raise Unreachable(f"the answer to {call.wire_name} is not by a conductor of this cell")
        self._hear(content[:MARK_BYTES])
        reply: ReplyT = codec.decode_reply(content[MARK_BYTES:], call.reply_type)
        return reply

    def _sealed(self, session: Session, kind: str, content: bytes) -> dict[str, Any]:
        self._number += 1
        at = int((time.monotonic() - self._began) * 1000)
        heard, incarnation = self._echo(), self.incarnation or 0
        header = (kind, incarnation, self._number, at, heard)
        return {
            "node": self._run.node,
            "incarnation": incarnation,
            "number": self._number,
            "at": at,
            "heard": heard,
            "sealed": session.seal_from_agent(self._number, header, content),
        }

    def _echo(self) -> bytes:
        marks = list(self._echoes)
        for mark in marks:
            self._echoes[mark] -= 1
            if not self._echoes[mark]:
                del self._echoes[mark]
        return b"".join(marks)

    def _hear(self, mark: bytes) -> None:
        """Note that a conductor was heard; one that is new is shown so."""
        if mark not in self._orders:
            if len(self._orders) >= CONDUCTORS:
                del self._orders[next(iter(self._orders))]
            self._orders[mark] = Numbers()
            self._echoes[mark] = ECHOED

    def _opened(self, message: Order) -> tuple[Any, RequestContext | None, str] | None:
        """Return an order of this session that was not taken before; None for everything else, which is said."""
        header = ("order", message.conductor, message.number)
        content = None if self._session is None else self._session.open_to_agent(header, message.sealed)
        if content is None:
            if self._session is not None:
                self._refuse("an order is not by a conductor of this cell, or was for another run of this agent")
            return None
        self._hear(message.conductor)
        if not self._orders[message.conductor].take(message.number):
            self._refuse("an order was repeated")
            return None
        try:
            return codec.decode_traced(content)
        except SkepError as error:
            self._refuse(str(error))
            return None

    def _refuse(self, why: str) -> None:
        """Say each reason once."""
        if why not in self._refused:
            self._refused.add(why)
            log.error("order refused", host=self._run.host, cell=self._cell, reason=why)


def _nothing() -> None:
    return None
