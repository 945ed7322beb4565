"""The writes of a move above the cells: while a row is handed back, the attempt that counts stands in the mapping."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database import leases as lease_rows
from skep.database.api import destinations
from skep.database.api.destinations import StagedMember
from skep.database.api.tables import instance_mappings, leases
from skep.domain.ids import CellUuid, Incarnation, InstanceUuid

mappings = instance_mappings.c


def take(
    connection: sa.Connection, owner: Incarnation, instance: InstanceUuid, cell: CellUuid, attempt: int, now: int
) -> int | None:
    """Take a server that waits in `cell` under `attempt`; return the raised attempt that my writes must find.

    None when it is elsewhere by now, somebody wants it deleted or somebody living works on it.
    """
    higher = sa.case((mappings.attempt > attempt, mappings.attempt), else_=attempt) + 1
    return connection.execute(
        instance_mappings.update()
        .where(
            mappings.instance == instance,
            mappings.cell == cell,
            mappings.delete_intent_at.is_(None),
            mappings.deleted_at.is_(None),
            sa.or_(mappings.owner == owner, lease_rows.unowned(leases, mappings.owner, now)),
        )
        .values(owner=owner, attempt=higher)
        .returning(mappings.attempt)
    ).scalar_one_or_none()


def take_no_more(connection: sa.Connection, owner: Incarnation, instance: InstanceUuid, taken: int) -> None:
    """Give a server back whose number nobody was told of: with it, the move under the number before would be refused.

    Nothing is changed where the server was another's meanwhile, or is to stay (`stays`).
    """
    mine = (mappings.instance == instance, mappings.owner == owner, mappings.attempt == taken)
    connection.execute(instance_mappings.update().where(*mine).values(owner=None, attempt=taken - 1))


def is_taken(connection: sa.Connection, instance: InstanceUuid) -> bool:
    """Tell whether a server has an owner, dead or alive."""
    found = sa.select(mappings.instance).where(mappings.instance == instance, mappings.owner.is_not(None))
    return connection.execute(found).first() is not None


def move(connection: sa.Connection, placement: StagedMember, before: CellUuid, after: CellUuid) -> bool:
    """Point the mapping at another cell.

    False when I was replaced, somebody wants the server deleted, or the cell or the host takes no builds any more.
    """
    if not destinations.still_open(connection, after, [placement]):
        return False
    return (
        connection.execute(
            instance_mappings.update()
            .where(
                mappings.instance == placement.instance,
                mappings.cell == before,
                mappings.attempt == placement.attempt,
                mappings.delete_intent_at.is_(None),
                mappings.deleted_at.is_(None),
            )
            .values(cell=after, owner=None)
        ).rowcount
        == 1
    )


def hand_over(
    connection: sa.Connection, instance: InstanceUuid, before: CellUuid, after: CellUuid, attempt: int
) -> bool:
    """Point the mapping at the other cell of a move between cells; True also where it names it under `attempt` already.

    False when somebody wants the server deleted, or the move was given up (`stays`).
    """
    of = sa.and_(mappings.instance == instance, mappings.delete_intent_at.is_(None), mappings.deleted_at.is_(None))
    moved = connection.execute(
        instance_mappings.update()
        .where(of, mappings.cell == before, mappings.attempt <= attempt)
        .values(cell=after, attempt=attempt, owner=None)
    ).rowcount
    if moved:
        return True
    there = sa.and_(mappings.cell == after, mappings.attempt == attempt)
    found = sa.select(mappings.instance).where(mappings.instance == instance, there)
    return connection.execute(found).first() is not None


def stays(connection: sa.Connection, instance: InstanceUuid, cell: CellUuid, attempt: int) -> bool:
    """Have nobody point the mapping at another cell under `attempt`; False where it names another cell than `cell`.

    Nobody owns it then: who took it before does not lower the number any more (`take_no_more`).
    """
    mine = sa.and_(mappings.instance == instance, mappings.cell == cell)
    raised = sa.case((mappings.attempt > attempt, mappings.attempt), else_=attempt + 1)
    return connection.execute(instance_mappings.update().where(mine).values(attempt=raised, owner=None)).rowcount == 1


def let_go_of_dead(connection: sa.Connection, instance: InstanceUuid, number: int | None, now: int) -> None:
    """Let anybody take a server whose owner lives no more.

    It died once it had staged the server in another cell, or came too late for that: the number that it took last is
    given back then, so that the move goes on under `number`. None: no number may be given back, for the cell of the
    server may still be told of it.
    """
    dead = sa.and_(mappings.owner.is_not(None), lease_rows.unowned(leases, mappings.owner, now))
    values: dict[str, sa.ColumnElement[int] | None] = {"owner": None}
    if number is not None:
        values["attempt"] = sa.case((mappings.attempt == number + 1, number), else_=mappings.attempt)
    connection.execute(instance_mappings.update().where(mappings.instance == instance, dead).values(values))


def give_back(connection: sa.Connection, owner: Incarnation, instance: InstanceUuid) -> None:
    """Let anybody take the server again."""
    connection.execute(
        instance_mappings.update().where(mappings.instance == instance, mappings.owner == owner).values(owner=None)
    )
