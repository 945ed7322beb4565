"""Enrolment: a token bound to a cell makes a machine a host of it, with nothing further to be done."""

from __future__ import annotations

import re
from functools import partial

import msgspec
import structlog

from skep.admin.answers import (
    AnsweredEnrolment,
    AnsweredEnrolmentToken,
    AnsweredKeyRelease,
    DeletedEnrolmentToken,
    ListedEnrolmentTokens,
    ShownTokenOfCell,
)
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import CELL_SECONDS
from skep.database import Connection
from skep.database.api import destinations, enrolments, host_mappings, retired_hosts
from skep.database.api.enrolments import Admitted, Denied, EnrolmentToken, NewHost
from skep.database.cell import cell_keys, host_keys
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, isoformat
from skep.domain.credentials import Token, new_token
from skep.domain.errors import BadRequest, Conflict, Forbidden, Misconfigured, NotFound
from skep.domain.ids import NodeUuid, is_uuid
from skep.domain.sessions import public_half
from skep.domain.signatures import PUBLIC_KEY_BYTES

MAX_DESCRIPTION = 255
MAX_USES = 100_000
MAX_SECONDS = 365 * 86_400
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

log = structlog.get_logger("skep.admin")


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /cells/{name}/enrolment-tokens`."""

    uses: int = 1
    expires_in: int = 86_400
    """Seconds."""
    description: str = ""


class EnrolmentBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /enrolments`."""

    host: str
    node: NodeUuid
    public_key: bytes
    """Ed25519, base64."""


@takes(TokenBody)
async def create_token(request: AdminRequest, body: TokenBody) -> AnsweredEnrolmentToken:
    """Make a token; its secret is shown once."""
    cell = _cell(request)
    if len(body.description) > MAX_DESCRIPTION or not body.description.isprintable():
        raise BadRequest(f"description: expected at most {MAX_DESCRIPTION} printable characters.")
    if not 1 <= body.uses <= MAX_USES:
        raise BadRequest(f"uses: expected 1 to {MAX_USES}.")
    if not 1 <= body.expires_in <= MAX_SECONDS:
        raise BadRequest(f"expires_in: expected 1 to {MAX_SECONDS} seconds.")
    now, token = request.services.clock.now(), new_token()
    new = EnrolmentToken(
        id=token.id,
        cell=cell.uuid,
        description=body.description,
        uses=body.uses,
        uses_left=body.uses,
        created_at=now,
        created_by=request.context.user_id,
        expires_at=now + body.expires_in * SECOND,
    )
    if not await request.services.database.write(partial(_add, new=new, token=token), intake=True):
        raise Conflict(f"Cell {cell.name} has {enrolments.MOST_OF_CELL} tokens already; revoke one first.")
    log.info("enrolment token created", token=new.id, cell=cell.name, uses=new.uses, user=request.context.user_id)
    return {"enrolment_token": {**_view(new), "secret": token.text}}


def _add(connection: Connection, new: EnrolmentToken, token: Token) -> bool:
    """Store a token, unless its cell goes: it would be left over. Raises NotFound."""
    if not destinations.cell_takes_hosts(connection, new.cell):
        raise NotFound("The cell is being deleted or was deleted.")
    return enrolments.add(connection, new, token)


@operation()
async def tokens(request: AdminRequest) -> ListedEnrolmentTokens:
    """Answer the tokens of a cell, without their secrets."""
    found = await request.services.database.read(partial(enrolments.of_cell, cell=_cell(request).uuid))
    return {"enrolment_tokens": [_view(one) for one in found]}


@operation()
async def delete_token(request: AdminRequest) -> DeletedEnrolmentToken:
    """Take a token back. Hosts that were enrolled with it stay."""
    cell, id_ = _cell(request), request.params["id"]
    removing = partial(enrolments.remove, cell=cell.uuid, id_=id_)
    if not id_.isalnum() or not await request.services.database.write(removing, intake=True):
        raise NotFound(f"Cell {cell.name} has no enrolment token {id_[:80]!r}.")
    log.info("enrolment token revoked", token=id_, cell=cell.name, user=request.context.user_id)
    return {"enrolment_token": {"id": id_, "deleted": True}}


@takes(EnrolmentBody)
async def enrol(request: AdminRequest, body: EnrolmentBody) -> AnsweredEnrolment:
    """Make a machine a host of the token's cell, and tell it how it reaches that. A repeat gets the same answer.

    Raises Forbidden when the token does not admit it, Conflict when its name or key is
    another host's.
    """
    services, token = request.services, request.token
    assert token is not None
    host = _host(body)
    cell = await services.database.write(partial(_admit, token=token, host=host, now=services.clock.now()), intake=True)
    if isinstance(cell, Denied):
        log.warning("enrolment denied", token=token.id, host=host.host, reason=cell.reason)
        raise Forbidden(cell.reason)
    known = services.names.get(cell.cell)
    if known is None:
        raise Forbidden("The cell of the enrolment token was deleted.")
    try:
        messaging = await services.messaging(known, host.node, host.host)
    except Misconfigured as error:
        raise Conflict(str(error)) from error
    now = services.clock.now()
    binding = partial(host_keys.bind, node=host.node, host=host.host, public_key=host.public_key, now=now)
    if await services.cell(known.uuid).write(binding, within=CELL_SECONDS) != host.public_key:
        raise Conflict(f"Node {host.node} has another key in cell {known.name}; an admin can release it.")
    cell_key = await services.cell(known.uuid).write(partial(cell_keys.private_key, now=now), within=CELL_SECONDS)
    log.info("host enrolled", token=token.id, host=host.host, node=host.node, cell=known.name)
    return {
        "enrolment": {
            "cell": {"uuid": known.uuid, "name": known.name, "public_key": public_half(cell_key)},
            "host": host.host,
            "node": host.node,
            "messaging": messaging,
        }
    }


@operation()
async def release_key(request: AdminRequest) -> AnsweredKeyRelease:
    """Forget the key of a host: the next agent that registers its node binds one. Raises NotFound when it has none."""
    services, name = request.services, request.params["host"]
    mapping = await services.database.read(partial(host_mappings.of_host, host=name))
    if mapping is None:
        raise NotFound(f"There is no host {name[:80]!r}.")
    releasing = partial(host_keys.release, node=mapping.node)
    if not await services.cell(mapping.cell).write(releasing, intake=True, within=CELL_SECONDS):
        raise NotFound(f"Host {mapping.host} has no key.")
    log.warning("key of a host released", host=mapping.host, node=mapping.node, user=request.context.user_id)
    return {"host": {"host": mapping.host, "node": mapping.node, "key_released": True}}


def _admit(connection: Connection, token: Token, host: NewHost, now: int) -> Admitted | Denied:
    admitted = enrolments.use(connection, token, host, now)
    if isinstance(admitted, Admitted):
        # Raised here, so that nothing is stored and the token keeps its use.
        if not destinations.cell_takes_hosts(connection, admitted.cell):
            raise Conflict("The cell of the enrolment token is being deleted.")
        if retired_hosts.is_pending(connection, host.node):
            raise Conflict(f"Node {host.node} is being deleted from its cell; try again soon.")
        other = host_mappings.of_host(connection, host.host)
        if other is not None and other.node != host.node:
            raise Conflict(f"Host {host.host} is node {other.node} already; choose another name (--host).")
        mapping = host_mappings.get(connection, host.node)
        if mapping is not None and mapping.cell != admitted.cell:
            raise Conflict(f"Node {host.node} is host {mapping.host} of another cell already.")
    return admitted


def _host(body: EnrolmentBody) -> NewHost:
    if not HOST_NAME.fullmatch(body.host):
        raise BadRequest("host: expected letters, digits, dots, dashes and underscores, at most 253.")
    if not is_uuid(body.node):
        raise BadRequest("node: expected a UUID.")
    if len(body.public_key) != PUBLIC_KEY_BYTES:
        raise BadRequest(f"public_key: expected {PUBLIC_KEY_BYTES} bytes in base64.")
    return NewHost(node=body.node, host=body.host, public_key=body.public_key)


def _cell(request: AdminRequest) -> Cell:
    cell = request.services.cell_named(request.params["name"])
    if cell.is_cell0:
        raise Conflict("cell0 has no hosts, so no host can be enrolled there.")
    return cell


def _view(one: EnrolmentToken) -> ShownTokenOfCell:
    return {
        "id": one.id,
        "cell": one.cell,
        "description": one.description,
        "uses": one.uses,
        "uses_left": one.uses_left,
        "created_at": isoformat(one.created_at),
        "created_by": one.created_by,
        "expires_at": isoformat(one.expires_at),
    }
