"""Who says what an agent says: proven before any story hears it, and compared with what the message itself claims.

The proof is the agent's session, or a transport that proves senders. Agents of hosts that were there before sessions
were are believed without one until their first session begins (`unsigned_hosts`), unless signatures are required.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from skep.cell_conductor.host_keys import HostKeys
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.refusals import RefusedAgents
from skep.cell_conductor.sessions import KnownSession, Sessions
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, SkepError, UnknownSession
from skep.domain.ids import NodeUuid
from skep.domain.wording import refuse_control_characters
from skep.messages.base import Cast
from skep.messages.to_cell_conductor import AgentCall, AgentCast, ReportHost, Spoken
from skep.messages.to_compute import ConductorHello, ReportHostNow
from skep.telemetry import tracing
from skep.telemetry.logs import get_logger
from skep.transport import codec
from skep.transport.base import Handler, Handlers, compute
from skep.transport.speaker import Speaker, proven_speaker

log = get_logger(__name__)

GREETING_SECONDS = 1.0
"""The least time between two greetings of one agent."""
REMEMBERED = 10_000

CheckCurrent = Callable[[Speaker], Awaitable[None]]
"""Raises StaleAgent when a younger run of the host's agent has registered."""


class Speakers:
    """Makes the handlers of a cell conductor's stories hear only what is proven."""

    def __init__(
        self, parts: Parts, sessions: Sessions, refusals: RefusedAgents, keys: HostKeys, check_current: CheckCurrent
    ) -> None:
        self._parts = parts
        self._sessions = sessions
        self._refusals = refusals
        self._keys = keys
        self._check_current = check_current
        self._recalled: dict[NodeUuid, float] = {}
        """When nodes whose hints are not of their session were asked to report."""
        self._handlers: dict[type[Any], Handler] = {}
        self._any_run: set[type[Any]] = set()

    def hearing(self, of_youngest: Handlers, of_any_run: Handlers) -> Handlers:
        """Return what the cell's conductors take from agents, for these handlers.

        What stands in `of_youngest` is heard from the youngest run of an agent only; the handlers of `of_any_run`
        look at it themselves.
        """
        self._handlers = {**of_youngest, **of_any_run}
        self._any_run = set(of_any_run)
        plain: Mapping[type[Any], Handler] = dict.fromkeys(self._handlers, self._plain)
        return {**plain, AgentCall: self._call, AgentCast: self._cast}

    # --- without a session -----------------------------------------------------------------------------

    async def _plain(self, message: Any, context: RequestContext | None) -> Any:
        proven = proven_speaker() if self._parts.transport.proves_senders else None
        return await self._hear(proven or await self._believed(message), message, context)

    async def _believed(self, message: Any) -> Speaker:
        """Return whom a message without proof is by. Raises Forbidden when its host does not speak so any more."""
        kind = message.wire_name
        node, host = getattr(message, "node", None), getattr(message, "host", None)
        found = await self._sessions.unsigned(node, host, lately=isinstance(message, Cast))
        if found is None:
            raise self._refusals.refuse(str(node or host), f"{kind} had no proof of its sender", host=host or "")
        if isinstance(message, ReportHost):
            await self._keys.refuse_unsigned(message)
        return Speaker(found.node, found.host, getattr(message, "incarnation", None))

    # --- in a session ----------------------------------------------------------------------------------

    async def _call(self, message: AgentCall, _context: RequestContext | None) -> Spoken:
        known, content = await self._opened(message, "call")
        if not known.numbers.take(message.number):
            raise Conflict(f"number: expected a number not used before, got {message.number}")
        self._note_mark(known, message.heard)
        known.is_late(message.at, time.monotonic())
        reply = await self._answer(known, message, content)
        return Spoken(known.session.seal_to_agent(("answer", message.number), self._sessions.mark + reply))

    async def _cast(self, message: AgentCast, _context: RequestContext | None) -> None:
        try:
            known, content = await self._opened(message, "cast")
        except UnknownSession:
            await self._recall(message.node)
            return
        identity, now = known.identity, time.monotonic()
        self._note_mark(known, message.heard)
        if not known.confirmed:
            # It may have been recorded before this conductor began. The agent says it again, if it is the agent.
            await self._greet(known, now)
            return
        if not known.numbers.take(message.number) or known.is_late(message.at, now):
            self._refusals.note(identity.node, "a hint was repeated or late", host=identity.host)
            return
        inner, context, traceparent = codec.decode_traced(content)
        with tracing.message(inner.wire_name, traceparent, answered=False):
            await self._hear(self._speaker(known, message), inner, context)

    async def _answer(self, known: KnownSession, message: AgentCall, content: bytes) -> bytes:
        """Have a call heard; what comes of it is encoded, errors too, so that nobody else can say them."""
        name = "AgentCall"
        try:
            inner, context, traceparent = codec.decode_traced(content)
            name = inner.wire_name
            with tracing.message(name, traceparent, answered=True):
                return codec.encode_reply(await self._hear(self._speaker(known, message), inner, context))
        except SkepError as error:
            return codec.encode_error(error)
        except Exception as error:
            log.exception("handler failed", cell=self._parts.cell.name, host=known.identity.host, message=name)
            return codec.encode_error(SkepError(f"{name} failed: {type(error).__name__}"))

    async def _opened(
        self, message: AgentCall | AgentCast, kind: Literal["call", "cast"]
    ) -> tuple[KnownSession, bytes]:
        """Return what was said, and in which session.

        Raises NotFound when the cell does not know the node, UnknownSession when it was not said in its session.
        """
        header = (kind, message.incarnation, message.number, message.at, message.heard)
        known: KnownSession | None = None
        for anew in (False, True):
            known = await self._sessions.of_node(message.node, anew=anew)
            if known is None:
                continue
            content = known.session.open_from_agent(message.number, header, message.sealed)
            if content is not None:
                return known, content
        host = known.identity.host if known is not None else ""
        self._refusals.refuse(message.node, "a message is not by the youngest run of the node's agent", host=host)
        raise UnknownSession(f"node {message.node} of cell {self._parts.cell.name} does not speak in its session")

    def _note_mark(self, known: KnownSession, heard: bytes) -> None:
        mark = self._sessions.mark
        marks = (heard[start : start + len(mark)] for start in range(0, len(heard), len(mark)))
        known.confirmed = known.confirmed or mark in marks

    async def _greet(self, known: KnownSession, now: float) -> None:
        if now - known.greeted_at >= GREETING_SECONDS:
            known.greeted_at = now
            host = known.identity.host
            await self._parts.transport.cast(compute(self._parts.cell.uuid, host), ConductorHello())

    async def _recall(self, node: NodeUuid) -> None:
        """Have the agents of a node report: one that has no session hears so from the answer, and registers or stops.

        Two agents with one identity serve one address and take turns, so each gets one of two.
        """
        now = time.monotonic()
        if now - self._recalled.get(node, -GREETING_SECONDS) < GREETING_SECONDS:
            return
        if len(self._recalled) >= REMEMBERED:
            self._recalled.clear()
        self._recalled[node] = now
        known = await self._sessions.of_node(node)
        if known is not None:
            for _ in range(2):
                await self._parts.transport.cast(compute(self._parts.cell.uuid, known.identity.host), ReportHostNow())

    @staticmethod
    def _speaker(known: KnownSession, message: AgentCall | AgentCast) -> Speaker:
        return Speaker(known.identity.node, known.identity.host, message.incarnation)

    # --- both ------------------------------------------------------------------------------------------

    async def _hear(self, speaker: Speaker, message: Any, context: RequestContext | None) -> Any:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise SkepError(f"a cell conductor does not accept {message.wire_name} from an agent")
        self._refuse_claims_of_others(speaker, message)
        refuse_control_characters(message, "", lines=not isinstance(message, ReportHost))
        if getattr(message, "incarnation", 0) is None and speaker.incarnation is not None:
            message = msgspec.structs.replace(message, incarnation=speaker.incarnation)
        if type(message) not in self._any_run:
            await self._check_current(speaker)
        return await handler(message, context)

    def _refuse_claims_of_others(self, speaker: Speaker, message: Any) -> None:
        """See that a message speaks of its sender. Raises Forbidden, and the log names both."""
        claims = [
            ("node", getattr(message, "node", None), speaker.node),
            ("host", getattr(message, "host", None), speaker.host),
            ("incarnation", getattr(message, "incarnation", None), speaker.incarnation),
        ]
        for field, claimed, own in claims:
            if claimed is not None and own is not None and claimed != own:
                why = f"{message.wire_name}.{field} claims to be {str(claimed)[:80]!r}"
                raise self._refusals.refuse(speaker.node, why, host=speaker.host)
