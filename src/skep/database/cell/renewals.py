"""Builds whose interfaces cannot be kept, for they belong to the host that a build failed on.

A cell reaches no network service. So the row of such a build says that its ports are to be made anew (`bound_to` is
`ANEW`), and waits with the choice of its next host until a super conductor has made them. They are bound to no host
then, and follow the server to the one that is chosen, as any ports do.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.cell import agents, builds, unreadable
from skep.database.cell.builds import Work
from skep.database.cell.instances import ANEW, AWAITS_PORTS, UNBOUND
from skep.database.cell.tables import MISBOUND, UNDER_WAY, instances
from skep.database.stored import dump
from skep.domain.capabilities import Capability
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.domain.vifs import Vif

row = instances.c


def note(connection: sa.Connection, limit: int) -> int:
    """Have the ports of builds made anew that failed on hosts which say that no other host can have them.

    Return how many. A server that is unshelved keeps its ports: its user knows their addresses.
    """
    failed = sa.and_(
        UNDER_WAY,
        row.state == State.RESCHEDULING.value,
        row.task.is_(None),
        row.shelved.is_(None),
        row.node.is_not(None),
        row.bound_to.is_not(None),
    )
    found = connection.execute(sa.select(row.uuid, row.node).where(failed, row.bound_to != ANEW).limit(limit)).all()
    if not found:
        return 0
    own = agents.having(connection, {one.node for one in found}, Capability.HOST_INTERFACES)
    named = [one.uuid for one in found if one.node in own]
    noted = instances.update().where(row.uuid.in_(named), failed).values(bound_to=ANEW, host=None, node=None)
    return connection.execute(noted).rowcount if named else 0


_WAITS = sa.and_(MISBOUND, AWAITS_PORTS, row.task.is_(None))


def are_noted(connection: sa.Connection) -> bool:
    """Tell whether any build waits for its ports."""
    return connection.execute(sa.select(row.uuid).where(_WAITS).limit(1)).first() is not None


def waiting(connection: sa.Connection, now: int, limit: int) -> list[Work]:
    """Return builds that wait for their ports, the longest waiting first; one that cannot be read becomes ERROR."""
    query = sa.select(*builds.work_columns).where(_WAITS).order_by(row.step_at).limit(limit)
    return unreadable.sifted(connection, connection.execute(query).all(), builds.work_of, now)


def renewed(connection: sa.Connection, uuid: InstanceUuid, attempt: int, vifs: Sequence[Vif], now: int) -> bool:
    """Write the interfaces that a build has from now on, bound to no host; False where it does not wait for them."""
    told = instances.update().where(row.uuid == uuid, row.attempt == attempt, _WAITS)
    values = {
        "vifs": dump(tuple(vifs)) if vifs else None,
        "bound_to": UNBOUND if vifs else None,
        "step_at": now,
        "changed_at": now,
    }
    return connection.execute(told.values(values)).rowcount == 1
