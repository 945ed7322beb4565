"""Builds whose interfaces cannot be kept, for they belong to the host that a build failed on.

A cell reaches no network service. So the row of such a build says that its ports are to be made anew (`bound_to` is
`ANEW`), and waits with the choice of its next host until a super conductor has made them. They are bound to no host
then, and follow the server to the one that is chosen, as any ports do. `sent_at`: when one took it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import agents, builds, reschedules, unreadable
from skep.database.cell.builds import Work
from skep.database.cell.instances import ANEW, AWAITS_PORTS, UNBOUND
from skep.database.cell.tables import MISBOUND, UNDER_WAY, instances
from skep.database.stored import dump
from skep.domain.capabilities import Capability
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Fault, State
from skep.domain.vifs import Vif

row = instances.c


_FAILED = sa.and_(
    UNDER_WAY,
    row.state == State.RESCHEDULING.value,
    row.task.is_(None),
    row.shelved.is_(None),
    row.node.is_not(None),
    row.bound_to.is_not(None),
    row.bound_to != ANEW,
)


def note(connection: sa.Connection) -> int:
    """Have the ports of builds made anew that failed on hosts which say that no other host can have them.

    Return how many: all there are, for whatever is not noted may go to its next host. A server that is unshelved keeps
    its ports: its user knows their addresses.
    """
    nodes = {NodeUuid(one) for one in connection.scalars(sa.select(row.node).where(_FAILED).distinct())}
    own = agents.having(connection, nodes, Capability.HOST_INTERFACES) if nodes else set()
    if not own:
        return 0
    noted = instances.update().where(_FAILED, row.node.in_(sorted(own)))
    return connection.execute(noted.values(bound_to=ANEW, host=None, node=None, sent_at=None)).rowcount


_WAITS = sa.and_(MISBOUND, AWAITS_PORTS, row.task.is_(None))


def are_noted(connection: sa.Connection) -> bool:
    """Tell whether any build waits for its ports."""
    return connection.execute(sa.select(row.uuid).where(_WAITS).limit(1)).first() is not None


def waiting(connection: sa.Connection, now: int, limit: int) -> list[Work]:
    """Return builds that wait for their ports, the longest waiting first; one that cannot be read becomes ERROR."""
    query = sa.select(*builds.work_columns).where(_WAITS).order_by(row.step_at).limit(limit)
    return unreadable.sifted(connection, connection.execute(query).all(), builds.work_of, now)


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A build whose ports one process makes anew."""

    instance: InstanceUuid
    attempt: int
    taken_at: int


def take(connection: sa.Connection, mine: Renewal, seconds: float) -> bool:
    """Let one process make the ports of a build anew; False where another one does, and took it within `seconds`.

    Of two that did so one would make them twice, or be refused what the other has made. What was taken at times that
    are to come does not count: the clock was set.
    """
    length = round(seconds * SECOND)
    others = row.sent_at.between(mine.taken_at - length, mine.taken_at + length)
    waits = (row.uuid == mine.instance, row.attempt == mine.attempt, _WAITS, sa.or_(row.sent_at.is_(None), ~others))
    return connection.execute(instances.update().where(*waits).values(sent_at=mine.taken_at)).rowcount == 1


def take_again(connection: sa.Connection, mine: Renewal, now: int) -> bool:
    """Say again that the process makes them that took it; False where another one does, or it is over."""
    return _written(connection, mine, sent_at=now)


def leave(connection: sa.Connection, mine: Renewal) -> None:
    """Let any process make them, if the one that took it still has it."""
    _written(connection, mine, sent_at=None)


def renewed(connection: sa.Connection, mine: Renewal, vifs: Sequence[Vif], now: int) -> bool:
    """Write the interfaces that a build has from now on, bound to no host.

    False where it does not wait for them, or another process has taken it since.
    """
    said = dump(tuple(vifs)) if vifs else None
    bound_to = UNBOUND if vifs else None
    return _written(connection, mine, vifs=said, bound_to=bound_to, sent_at=None, step_at=now, changed_at=now)


def refused(connection: sa.Connection, mine: Renewal, fault: Fault, now: int) -> bool:
    """End a build whose ports cannot be made anew: no other host would change it. False as `renewed`."""
    if not take_again(connection, mine, now):
        return False
    return reschedules.exhausted(connection, mine.instance, mine.attempt, fault, now)


def _written(connection: sa.Connection, mine: Renewal, **values: Any) -> bool:
    """Write into the row of a build that this process still has."""
    held = (row.uuid == mine.instance, row.attempt == mine.attempt, _WAITS, row.sent_at == mine.taken_at)
    return connection.execute(instances.update().where(*held).values(values)).rowcount == 1
