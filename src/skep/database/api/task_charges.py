"""Charges of servers to which an action does something: given back while they are soft-deleted, charged again, or
larger while they are resized.

Before the action is written into a cell, the charge bears its task. Whoever reads the cell then settles it by what the
server is: `settle` changes nothing once another action has put its own task there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from skep.database.api import quotas
from skep.database.api.tables import instance_mappings, quota_charges
from skep.domain.errors import QuotaExceeded
from skep.domain.flavors import Flavor
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance
from skep.domain.quotas import COUNTED, QuotaCharge, charge_of, larger

row = quota_charges.c


class TaskCharge(msgspec.Struct, frozen=True, kw_only=True):
    """A charge that waits for the outcome of a task."""

    instance: InstanceUuid
    cell: CellUuid
    task_id: str
    since: int
    charged: QuotaCharge
    """What is charged meanwhile."""


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
        sa.select(row.instance, row.task_id, row.task_at, mapping.cell, *(row[name] for name in COUNTED))
        .join(instance_mappings, mapping.instance == row.instance)
        .where(row.task_id.is_not(None), mapping.cell.is_not(None), mapping.deleted_at.is_(None))
        .order_by(row.task_at)
    )
    return [
        TaskCharge(
            instance=one.instance,
            cell=one.cell,
            task_id=one.task_id,
            since=one.task_at,
            charged=QuotaCharge(**{name: getattr(one, name) for name in COUNTED}),
        )
        for one in found
    ]


def settle(connection: sa.Connection, instance: InstanceUuid, task_id: str, owed: QuotaCharge) -> bool:
    """Charge what is owed now that the task is over, whatever the limits are; False, and nothing is changed, when the
    charge bears another task, or none. A charge of nothing keeps its row."""
    mine = sa.and_(row.instance == instance, row.task_id == task_id)
    if not connection.execute(quota_charges.update().where(mine).values(task_id=None, task_at=None)).rowcount:
        return False
    quotas.recharge(connection, instance, owed)
    return True


def correct(connection: sa.Connection, instance: InstanceUuid, task_id: str, owed: QuotaCharge) -> None:
    """Charge what is owed while the task is not over yet; nothing is changed when the charge bears another one."""
    mine = sa.and_(row.instance == instance, row.task_id == task_id)
    if connection.execute(sa.select(row.instance).where(mine)).first() is not None:
        quotas.recharge(connection, instance, owed)


def charge_larger(
    connection: sa.Connection,
    server: Instance,
    flavor: Flavor,
    task_id: str,
    now: int,
    limits: Mapping[str, int],
    *,
    user_limits: Mapping[str, int] | None = None,
) -> None:
    """Charge a server that is to be resized for the larger of its two flavors; the charge bears the task then.

    Raises QuotaExceeded, and nothing of the transaction may be kept.
    """
    wanted = larger(charge_of(server.flavor), charge_of(flavor))
    refused = quotas.raise_charge(connection, server.uuid, wanted, limits, user_limits=user_limits)
    if refused is not None:
        raise QuotaExceeded(refused.message())
    bear(connection, server.uuid, task_id, now)


def hurry(connection: sa.Connection, instance: InstanceUuid, task_id: str) -> None:
    """Let the charge be settled soon: the task was refused, so nobody waits for it to begin."""
    mine = sa.and_(row.instance == instance, row.task_id == task_id)
    connection.execute(quota_charges.update().where(mine).values(task_at=0))
