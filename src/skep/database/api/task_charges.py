"""Charges of servers to which an action does something: given back while they are soft-deleted, charged again.

Before the action is written into a cell, the charge bears its task. Whoever reads the cell then settles it by what the
server is: `settle` and `give_back` change nothing once another action has put its own task there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from skep.database.api import quotas
from skep.database.api.tables import instance_mappings, quota_charges, quota_sums
from skep.domain.errors import QuotaExceeded
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance
from skep.domain.quotas import COUNTED, charge_of

row = quota_charges.c


class TaskCharge(msgspec.Struct, frozen=True, kw_only=True):
    """A charge that waits for the outcome of a task."""

    instance: InstanceUuid
    cell: CellUuid
    task_id: str
    since: int


def bear(connection: sa.Connection, instance: InstanceUuid, task_id: str, now: int) -> None:
    """Note that a task decides what becomes of a server's charge, whatever task did so before."""
    connection.execute(quota_charges.update().where(row.instance == instance).values(task_id=task_id, task_at=now))


def charge_again(
    connection: sa.Connection,
    server: Instance,
    task_id: str,
    now: int,
    limits: Mapping[str, int],
    *,
    user_limits: Mapping[str, int] | None = None,
) -> None:
    """Charge a server whose charge was given back; the charge bears the task then. One that was not stays as it is.

    Raises QuotaExceeded, and nothing of the transaction may be kept.
    """
    kept = connection.execute(sa.select(row.instances).where(row.instance == server.uuid)).scalar_one_or_none()
    if not kept:
        # The row of nothing makes room for the whole one: the sums stay what they are.
        connection.execute(quota_charges.delete().where(row.instance == server.uuid))
        charges = {server.uuid: charge_of(server.flavor)}
        refused = quotas.charge(connection, server.project_id, server.user_id, charges, limits, user_limits=user_limits)
        if refused is not None:
            raise QuotaExceeded(refused.message())
    bear(connection, server.uuid, task_id, now)


def waiting(connection: sa.Connection) -> list[TaskCharge]:
    """Return the charges that bear a task, oldest first, of servers that are not deleted."""
    mapping = instance_mappings.c
    found = connection.execute(
        sa.select(row.instance, row.task_id, row.task_at, mapping.cell)
        .join(instance_mappings, mapping.instance == row.instance)
        .where(row.task_id.is_not(None), mapping.cell.is_not(None), mapping.deleted_at.is_(None))
        .order_by(row.task_at)
    )
    return [TaskCharge(instance=one.instance, cell=one.cell, task_id=one.task_id, since=one.task_at) for one in found]


def settle(connection: sa.Connection, instance: InstanceUuid, task_id: str) -> bool:
    """Note that the task is over and the charge right as it is; False when it bears another task, or none."""
    mine = sa.and_(row.instance == instance, row.task_id == task_id)
    return connection.execute(quota_charges.update().where(mine).values(task_id=None, task_at=None)).rowcount == 1


def give_back(connection: sa.Connection, instance: InstanceUuid, task_id: str) -> bool:
    """Take back what a soft-deleted server is charged, once; its row stays, of nothing. False as for `settle`."""
    mine = sa.and_(row.instance == instance, row.task_id == task_id)
    found = connection.execute(sa.select(row.project_id, *(row[name] for name in COUNTED)).where(mine)).first()
    if found is None or not settle(connection, instance, task_id):
        return False
    nothing = dict.fromkeys(COUNTED, 0)
    connection.execute(quota_charges.update().where(row.instance == instance).values(**nothing))
    connection.execute(
        quota_sums.update()
        .where(quota_sums.c.project_id == found.project_id)
        .values({name: quota_sums.c[name] - found._mapping[name] for name in COUNTED})
    )
    return True
