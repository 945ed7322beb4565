"""Who may speak for a node: the agent whose key was bound to it, at its enrolment or at its first registration."""

from __future__ import annotations

from functools import partial

import msgspec

from skep.cell_conductor.parts import Parts
from skep.database.cell import host_keys
from skep.domain.errors import BadRequest, Forbidden
from skep.domain.ids import NodeUuid
from skep.domain.signatures import PUBLIC_KEY_BYTES, signed_registration, signed_report
from skep.messages.to_cell_conductor import RegisterAgent, ReportHost, SignedReport
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

REMEMBERED = 10_000
"""Nodes of which it is remembered why they were refused."""

_report_decoder = msgspec.msgpack.Decoder(ReportHost)


class HostKeys:
    """Binds keys to nodes and checks signatures by them. Keys are remembered; a wrong one is looked up again."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._keys: dict[NodeUuid, bytes] = {}
        self._refused: dict[NodeUuid, str] = {}
        """Why a node was refused, so that each reason is said once."""

    async def admit(self, message: RegisterAgent) -> bool:
        """Let an agent register; return whether it has to sign its reports.

        Raises Forbidden when the node has another key, or none though hosts must be enrolled.
        """
        node, key = message.identity.node, message.public_key
        if not key:
            if await self._key(node, anew=True) is not None:
                raise self._refusal(node, "the registration is not signed, and the node has a key")
            self._must_not_be_required(node)
            return False
        if len(key) != PUBLIC_KEY_BYTES:
            raise BadRequest(f"public_key: expected {PUBLIC_KEY_BYTES} bytes.")
        if not signed_registration(key, self._parts.cell.uuid, message.identity, message.signature):
            raise self._refusal(node, "the registration is not signed by the key that it bears")
        known = await self._key(node, anew=True)
        if known is None:
            self._must_not_be_required(node)
            known = await self._bind(message)
        if known != key:
            raise self._refusal(node, "an agent with another key than the one that is bound to the node")
        self._refused.pop(node, None)
        return True

    async def refuse_unsigned(self, message: ReportHost) -> None:
        """Raise Forbidden when a report came without a signature though its node has a key."""
        if await self._key(message.node) and await self._key(message.node, anew=True):
            raise self._refusal(message.node, "a report is not signed, and the node has a key")

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
            raise self._refusal(message.node, "a report is not signed by the key that is bound to the node")
        try:
            report = _report_decoder.decode(message.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"body: {error}") from error
        if report.node != message.node:
            raise BadRequest(f"body: the report is of node {report.node}, not {message.node}")
        return report

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

    def _must_not_be_required(self, node: NodeUuid) -> None:
        if self._parts.settings.require_enrolment:
            raise self._refusal(node, "the node was not enrolled (`skep enrol`), and this cell takes no other")

    def _refusal(self, node: NodeUuid, why: str) -> Forbidden:
        if self._refused.get(node) != why:
            if len(self._refused) >= REMEMBERED:
                self._refused.clear()
            self._refused[node] = why
            log.error("an agent is refused", cell=self._parts.cell.name, node=node, reason=why)
        return Forbidden(f"node {node} of cell {self._parts.cell.name}: {why}")
