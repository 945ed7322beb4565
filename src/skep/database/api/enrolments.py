"""Enrolment tokens: each lets so many machines become hosts of its cell, until it expires."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api.enrolment_tables import enrolment_tokens, enrolments
from skep.domain.credentials import Token
from skep.domain.ids import CellUuid, NodeUuid

MOST_OF_CELL = 100

row = enrolment_tokens.c
enrolled = enrolments.c


class EnrolmentToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. Times are microseconds since the epoch."""

    id: str
    cell: CellUuid
    description: str
    uses: int
    uses_left: int
    created_at: int
    created_by: str
    expires_at: int


class NewHost(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that wants to be a host."""

    node: NodeUuid
    host: str
    public_key: bytes


class Admitted(msgspec.Struct, frozen=True):
    """The machine is a host of this cell."""

    cell: CellUuid


class Denied(msgspec.Struct, frozen=True):
    """The token does not admit the machine; why, as its holder may know."""

    reason: str


UNKNOWN = Denied("The enrolment token is not known here: it is of another installation, or was taken back.")


def add(connection: sa.Connection, new: EnrolmentToken, token: Token) -> bool:
    """Store a token; tell whether its cell has room for another one. Those that have expired make room."""
    lapsed = sa.select(row.id).where(row.cell == new.cell, row.expires_at <= new.created_at)
    connection.execute(sa.delete(enrolments).where(enrolled.token.in_(lapsed)))
    connection.execute(sa.delete(enrolment_tokens).where(row.cell == new.cell, row.expires_at <= new.created_at))
    if len(of_cell(connection, new.cell)) >= MOST_OF_CELL:
        return False
    connection.execute(sa.insert(enrolment_tokens).values(secret_hash=token.digest, **msgspec.structs.asdict(new)))
    return True


def of_cell(connection: sa.Connection, cell: CellUuid) -> tuple[EnrolmentToken, ...]:
    """Return the tokens of a cell, oldest first, also those that are used up or have expired."""
    query = sa.select(enrolment_tokens).where(row.cell == cell).order_by(row.created_at, row.id)
    names = EnrolmentToken.__struct_fields__
    return tuple(EnrolmentToken(**{name: one[name] for name in names}) for one in connection.execute(query).mappings())


def knows(connection: sa.Connection, token: Token) -> bool:
    """Tell whether a token was made here and not taken back, whatever is left of it."""
    return _known(connection, token) is not None


def use(connection: sa.Connection, token: Token, host: NewHost, now: int) -> Admitted | Denied:
    """Admit a machine by a token, which has one use less then; a repeat by the same machine uses none."""
    found = _known(connection, token)
    if found is None:
        return UNKNOWN
    known = connection.execute(
        sa.select(enrolments).where(enrolled.token == token.id, enrolled.public_key == host.public_key)
    ).first()
    if known is not None:
        if (known.node, known.host) != (host.node, host.host):
            return Denied(f"This key was enrolled as host {known.host}, node {known.node}.")
        return Admitted(CellUuid(found.cell))
    if found.expires_at <= now:
        return Denied("The enrolment token has expired.")
    one_less = sa.update(enrolment_tokens).where(row.id == token.id, row.uses_left > 0)
    if connection.execute(one_less.values(uses_left=row.uses_left - 1)).rowcount != 1:
        return Denied(f"The enrolment token is used up: it was for {found.uses} hosts.")
    new = {"token": token.id, "enrolled_at": now, **msgspec.structs.asdict(host)}
    connection.execute(sa.insert(enrolments), new)
    return Admitted(CellUuid(found.cell))


def remove(connection: sa.Connection, cell: CellUuid, id_: str) -> bool:
    """Take a token back; tell whether the cell had it. Hosts that were enrolled with it stay."""
    if not connection.execute(sa.delete(enrolment_tokens).where(row.id == id_, row.cell == cell)).rowcount:
        return False
    connection.execute(sa.delete(enrolments).where(enrolled.token == id_))
    return True


def remove_of(connection: sa.Connection, cell: CellUuid) -> None:
    """Take all tokens back of a cell that goes."""
    mine = sa.select(row.id).where(row.cell == cell)
    connection.execute(sa.delete(enrolments).where(enrolled.token.in_(mine)))
    connection.execute(sa.delete(enrolment_tokens).where(row.cell == cell))


def _known(connection: sa.Connection, token: Token) -> sa.Row[Any] | None:
    found = connection.execute(sa.select(enrolment_tokens).where(row.id == token.id)).first()
    right = token.matches(found.secret_hash if found is not None else bytes(32))
    return found if right else None
