"""Credentials of programs, bound to a cell or to a namespace. A secret is shown once, when it is made."""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from skep.admin import namespaces
from skep.admin.answers import (
    AnsweredCredential,
    DeletedCredential,
    ListedCredentialsOfPrograms,
    ShownCredentialOfProgram,
)
from skep.admin.requests import AdminRequest, operation, takes
from skep.database import Connection
from skep.database.api import credentials, destinations
from skep.database.api import namespaces as namespace_rows
from skep.domain.clock import SECOND, isoformat
from skep.domain.credentials import Credential, Scope, Token, new_token
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import CellUuid

MAX_DESCRIPTION = 255
MAX_SECONDS = 10 * 366 * 24 * 3600
"""Ten years."""

log = structlog.get_logger("skep.admin")


class CredentialBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a `POST .../credentials`."""

    description: str = ""
    expires_in: int | None = None
    """Seconds; None: until it is taken back."""


@takes(CredentialBody)
async def create_of_cell(request: AdminRequest, body: CredentialBody) -> AnsweredCredential:
    """Make a credential for the hosts of one cell."""
    return await _create(request, _of_cell(request), body)


@takes(CredentialBody)
async def create_of_namespace(request: AdminRequest, body: CredentialBody) -> AnsweredCredential:
    """Make a credential for the states of one namespace."""
    return await _create(request, await _of_namespace(request), body)


@operation()
async def index_of_cell(request: AdminRequest) -> ListedCredentialsOfPrograms:
    """Answer the credentials of a cell, without their secrets."""
    return await _index(request, _of_cell(request))


@operation()
async def index_of_namespace(request: AdminRequest) -> ListedCredentialsOfPrograms:
    """Answer the credentials of a namespace, without their secrets."""
    return await _index(request, await _of_namespace(request))


@operation()
async def delete_of_cell(request: AdminRequest) -> DeletedCredential:
    """Take a credential of a cell back; it is refused from the next request on."""
    return await _delete(request, _of_cell(request))


@operation()
async def delete_of_namespace(request: AdminRequest) -> DeletedCredential:
    """Take a credential of a namespace back; it is refused from the next request on."""
    return await _delete(request, await _of_namespace(request))


def _of_cell(request: AdminRequest) -> Scope:
    cell = request.services.cell_named(request.params["name"])
    if cell.is_cell0:
        raise Conflict("cell0 has no hosts, so it has no credentials.")
    return Scope("cell", cell.uuid)


async def _of_namespace(request: AdminRequest) -> Scope:
    return Scope("namespace", (await namespaces.named(request)).name)


async def _create(request: AdminRequest, scope: Scope, body: CredentialBody) -> AnsweredCredential:
    if len(body.description) > MAX_DESCRIPTION or not body.description.isprintable():
        raise BadRequest(f"description: expected at most {MAX_DESCRIPTION} printable characters.")
    if body.expires_in is not None and not 1 <= body.expires_in <= MAX_SECONDS:
        raise BadRequest(f"expires_in: expected 1 to {MAX_SECONDS} seconds.")
    now, token = request.services.clock.now(), new_token()
    new = Credential(
        id=token.id,
        scope=scope,
        description=body.description,
        created_at=now,
        created_by=request.context.user_id,
        expires_at=None if body.expires_in is None else now + body.expires_in * SECOND,
    )
    if not await request.services.database.write(partial(_add, new=new, token=token), intake=True):
        raise Conflict(f"There are {credentials.MOST_OF_SCOPE} credentials for it already; delete one first.")
    log.info("credential created", credential=new.id, kind=scope.kind, scope=scope.name, user=request.context.user_id)
    return {"credential": {**_view(new), "secret": token.text}}


def _add(connection: Connection, new: Credential, token: Token) -> bool:
    """Store a credential, unless what it is for is gone by now: it would be left over. Raises NotFound."""
    scope = new.scope
    if scope.kind == "cell" and not destinations.cell_takes_hosts(connection, CellUuid(scope.name)):
        raise NotFound("The cell is being deleted or was deleted.")
    if scope.kind == "namespace" and namespace_rows.get(connection, scope.name) is None:
        raise NotFound("The namespace was deleted.")
    return credentials.add(connection, new, token)


async def _index(request: AdminRequest, scope: Scope) -> ListedCredentialsOfPrograms:
    found = await request.services.database.read(partial(credentials.of_scope, scope=scope))
    return {"credentials": [_view(one) for one in found]}


async def _delete(request: AdminRequest, scope: Scope) -> DeletedCredential:
    id_ = request.params["id"]
    removing = partial(credentials.remove, scope=scope, id_=id_)
    if not id_.isalnum() or not await request.services.database.write(removing, intake=True):
        raise NotFound(f"There is no credential {id_[:80]!r} of it.")
    log.info("credential revoked", credential=id_, user=request.context.user_id)
    return {"credential": {"id": id_, "deleted": True}}


def _view(one: Credential) -> ShownCredentialOfProgram:
    view: ShownCredentialOfProgram = {
        "id": one.id,
        "description": one.description,
        "created_at": isoformat(one.created_at),
        "created_by": one.created_by,
        "expires_at": None if one.expires_at is None else isoformat(one.expires_at),
        "last_used_at": None if one.last_used_at is None else isoformat(one.last_used_at),
    }
    view[one.scope.kind] = one.scope.name
    return view
