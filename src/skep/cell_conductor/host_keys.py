"""Who may register for a node: the agent whose key was bound to it, at its enrolment or at its first registration."""

from __future__ import annotations

from functools import partial

import msgspec

from skep.cell_conductor.parts import Parts
from skep.cell_conductor.refusals import RefusedAgents
from skep.database.cell import host_keys, sessions
from skep.domain.decoding import msgpack_decoder
from skep.domain.errors import BadRequest
from skep.domain.ids import NodeUuid
from skep.domain.sessions import EXCHANGE_KEY_BYTES
from skep.domain.signatures import (
    PUBLIC_KEY_BYTES,
    names_orders,
    signed_next_key,
    signed_registration,
    signed_report,
    signed_run,
)
from skep.messages.to_cell_conductor import RegisterAgent, ReportHost, SignedReport
from skep.telemetry.logs import get_logger
from skep.transport.speaker import proven_speaker

log = get_logger(__name__)
_report_decoder = msgpack_decoder(ReportHost)


class HostKeys:
    """Binds keys to nodes and checks signatures by them. Keys are remembered; a wrong one is looked up again."""

    def __init__(self, parts: Parts, refusals: RefusedAgents | None = None) -> None:
        self._parts = parts
        self._keys: dict[NodeUuid, bytes] = {}
        self._refusals = refusals or RefusedAgents(parts.cell.name)

    async def admit(self, message: RegisterAgent) -> bool:
        """Let an agent register; return whether its node has a key.

        Raises Forbidden when the node has another key, when it has none though hosts must be enrolled, or when what is
        signed is less than must be.
        """
        node, key = message.identity.node, message.public_key
        if not key:
            if await self._key(node, anew=True) is not None:
                raise await self._not_believed(message, "the registration is not signed, and the node has a key")
            self._must_not_be_required(message)
            if not self._is_proven(message):
                await self._must_be_of_old(message, "the registration is not signed")
            return False
        if len(key) != PUBLIC_KEY_BYTES:
            raise BadRequest(f"public_key: expected {PUBLIC_KEY_BYTES} bytes.")
        if not signed_registration(key, self._parts.cell.uuid, message.identity, message.signature):
            raise self._refused(message, "the registration is not signed by the key that it names")
        await self._check_run(message)
        known = await self._key(node, anew=True)
        if known is None:
            self._must_not_be_required(message)
            known = await self._bind(message)
        if self._names_next(message) and known == key:
            known = await self._replace(message)
        # Of a run whose answer was lost the next key is bound already.
        if known != key and not (self._names_next(message) and known == message.next_key):
            why = "an agent with another key than the one that is bound to the node"
            raise await self._not_believed(message, why)
        self._refusals.forget(node)
        return True

    def said_by(self, message: RegisterAgent) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Return the orders and capabilities that an admitted agent is proven to have said; none without a proof."""
        if message.number or self._is_proven(message):
            return message.understands, message.capabilities
        return (), None

    def bound(self, node: NodeUuid) -> bytes:
        """Return the key that is bound to a node whose agent was admitted."""
        return self._keys.get(node, b"")

    def _names_next(self, message: RegisterAgent) -> bool:
        """Tell whether the host's key names the next one, and who has that says so in this very registration."""
        cell, identity = self._parts.cell.uuid, message.identity
        return (
            len(message.next_key) == PUBLIC_KEY_BYTES
            and bool(message.number)
            and signed_next_key(message.public_key, cell, identity, message.next_key, message.next_signature)
            and signed_run(
                message.next_key,
                cell,
                identity,
                message.number,
                message.exchange_key,
                message.challenge,
                message.next_run_signature,
                message.seen,
            )
        )

    async def refuse_unsigned(self, message: ReportHost) -> None:
        """Raise Forbidden when a report came without a signature though its node has a key."""
        if await self._key(message.node) and await self._key(message.node, anew=True):
            raise self._refusals.refuse(message.node, "a report is not signed, and the node has a key")

    async def opened(self, message: SignedReport) -> ReportHost:
        """Return what was signed.

        Raises Forbidden when it is not signed by the node's key, BadRequest when it is no report of that node.
        """
        cell = self._parts.cell.uuid
        for anew in (False, True):
            key = await self._key(message.node, anew=anew)
            if key is not None and signed_report(key, cell, message.body, message.signature):
                break
        else:
            raise self._refusals.refuse(message.node, "a report is not signed by the key that is bound to the node")
        try:
            report = _report_decoder.decode(message.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"body: {error}") from error
        if report.node != message.node:
            raise BadRequest(f"body: the report is of node {report.node}, not {message.node}")
        return report

    async def _check_run(self, message: RegisterAgent) -> None:
        """See that the beginning of the session is signed, or that the node may do without."""
        if not message.number:
            if not self._is_proven(message):
                await self._must_be_of_old(message, "the registration begins no session")
            return
        if len(message.exchange_key) != EXCHANGE_KEY_BYTES:
            raise BadRequest(f"exchange_key: expected {EXCHANGE_KEY_BYTES} bytes.")
        if not signed_run(
            message.public_key,
            self._parts.cell.uuid,
            message.identity,
            message.number,
            message.exchange_key,
            message.challenge,
            message.run_signature,
            message.seen,
        ):
            raise self._refused(message, "the run is not signed by the key of the registration")
        if not names_orders(message.challenge, message.understands, message.capabilities):
            raise self._refused(
                message, "understands, capabilities: these are not the ones that the run was signed for"
            )

    def _is_proven(self, message: RegisterAgent) -> bool:
        """Tell whether the transport says that the message is by whom it names."""
        speaker = proven_speaker() if self._parts.transport.proves_senders else None
        identity = message.identity
        return speaker is not None and (speaker.node, speaker.host) == (identity.node, identity.host)

    async def _must_be_of_old(self, message: RegisterAgent, why: str) -> None:
        """See that a host was there before sessions were, and may still do without."""
        reading = partial(sessions.may_be_unsigned, node=message.identity.node)
        if self._parts.require_signatures:
            raise self._refused(message, f"{why}, and `agents.require_signatures` is set")
        if not await self._parts.database.read(reading):
            raise self._refused(message, f"{why}, and the host is new, or has begun sessions before")

    async def _key(self, node: NodeUuid, *, anew: bool = False) -> bytes | None:
        known = None if anew else self._keys.get(node)
        if known is None:
            known = await self._parts.database.read(partial(host_keys.get, node=node))
            self._remember(node, known)
        return known

    def _remember(self, node: NodeUuid, key: bytes | None) -> None:
        if key is None:
            self._keys.pop(node, None)
        else:
            self._keys[node] = key

    async def _bind(self, message: RegisterAgent) -> bytes:
        identity, key = message.identity, message.public_key
        binding = partial(
            host_keys.bind, node=identity.node, host=identity.host, public_key=key, now=self._parts.clock.now()
        )
        bound = await self._parts.database.write(binding)
        self._remember(identity.node, bound)
        return bound

    async def _replace(self, message: RegisterAgent) -> bytes | None:
        node = message.identity.node
        replacing = partial(
            host_keys.replace, node=node, old=message.public_key, new=message.next_key, now=self._parts.clock.now()
        )
        bound = await self._parts.database.write(replacing)
        self._remember(node, bound)
        if bound == message.next_key:
            log.info("key of a host replaced", host=message.identity.host, node=node)
        return bound

    def _must_not_be_required(self, message: RegisterAgent) -> None:
        if self._parts.settings.require_enrolment:
            raise self._refused(
                message, "the node was not enrolled (`skep enrol`), and this cell accepts enrolled nodes only"
            )

    async def _not_believed(self, message: RegisterAgent, why: str) -> Exception:
        """Note for the operator that the node's agent has not its key; return the error for the agent."""
        node, now = message.identity.node, self._parts.clock.now()
        await self._parts.database.write(partial(host_keys.note_refused, node=node, now=now))
        return self._refused(message, why)

    def _refused(self, message: RegisterAgent, why: str) -> Exception:
        return self._refusals.refuse(message.identity.node, why, host=message.identity.host)
