"""Hosts that an operator declared dead, and what becomes of all that was on them.

A fence first only marks its host: nobody waits any more for what is given up there anyhow (deletes, builds that went
elsewhere), and everything else stays as it is. Until it is due it can be taken back. Then it takes effect: the attempt
of every row that its host still had is raised, so that whatever the host brings back after all is stale, and undone
like any other attempt that its row has left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import (
    attempts,
    builds,
    deletes,
    evacuations,
    numbers,
    offloads,
    resting,
    soft_deletes,
    tasks,
    unreadable,
    unshelves,
)
from skep.database.cell.tables import NOT_BUILT, agents, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.transitions import moving
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.actions import Ended
from skep.domain.claims import ClaimKey
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Fault, State, Task
from skep.domain.request_specs import RequestSpec
from skep.domain.states import BUILT_BY_HOST, ENDS

row = instances.c
attempt = attempt_rows.c

OUTCOME = attempts.FENCED


class FencedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is dead for good, as far as anybody knows."""

    node: NodeUuid
    host: str
    in_effect: bool = True
    """What was there is given up. False: it is only marked, and the fence can be taken back."""
    due_at: int | None = None
    """When a mark takes effect."""


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """What was closed in one go."""

    released: tuple[ClaimKey, ...] = ()
    rescheduled: int = 0
    lost: int = 0
    """Servers that ran there, in ERROR now."""
    ended: tuple[Ended, ...] = ()
    """Actions that are over with it."""

    @property
    def deleted(self) -> int:
        """How many servers were deleted."""
        return sum(one.action == deletes.DELETE.name for one in self.ended)


def mark(connection: sa.Connection, node: NodeUuid, now: int, due_at: int) -> bool:
    """Write that the host of a node is dead, which takes effect at `due_at`; False when the cell has no such node.

    It may be repeated: the first mark counts.
    """
    marked_at, due = agents.c.fence_marked_at, agents.c.fence_due_at
    return (
        connection.execute(
            agents.update()
            .where(agents.c.node == node)
            .values(
                fence_marked_at=sa.func.coalesce(marked_at, agents.c.fenced_at, now),
                fence_due_at=sa.func.coalesce(due, agents.c.fenced_at, due_at),
            )
        ).rowcount
        == 1
    )


def take_back(connection: sa.Connection, node: NodeUuid) -> bool:
    """Take the mark of a host back; False when it has none, or one that has taken effect.

    What still is where it was goes on there. What was given up meanwhile stays given up: its host is to undo it.
    """
    mine = sa.and_(agents.c.node == node, agents.c.fence_marked_at.is_not(None), agents.c.fenced_at.is_(None))
    if not connection.execute(agents.update().where(mine).values(fence_marked_at=None, fence_due_at=None)).rowcount:
        return False
    _reopen(connection, node)
    return True


def fenced(connection: sa.Connection) -> list[FencedHost]:
    """Return the hosts that are fenced, marked ones too."""
    found = connection.execute(
        sa.select(agents.c.node, agents.c.host, agents.c.fenced_at, agents.c.fence_due_at)
        .where(sa.or_(agents.c.fenced_at.is_not(None), agents.c.fence_marked_at.is_not(None)))
        .order_by(agents.c.host)
    )
    return [
        FencedHost(node=NodeUuid(one.node), host=one.host, in_effect=one.fenced_at is not None, due_at=one.fence_due_at)
        for one in found
    ]


def take_effect(connection: sa.Connection, node: NodeUuid, now: int) -> bool:
    """Let the mark of a host take effect, if it is due; False when it is not, or was taken back."""
    due = sa.and_(
        agents.c.node == node,
        agents.c.fence_marked_at.is_not(None),
        agents.c.fence_due_at <= now,
        agents.c.fenced_at.is_(None),
        ~resting.awaited(agents.c.host),
    )
    return connection.execute(agents.update().where(due).values(fenced_at=now)).rowcount == 1


def settle(connection: sa.Connection, host: FencedHost, now: int, limit: int) -> Closed:
    """Wait no more for a marked host: close up to `limit` attempts that their rows have left behind; end its tasks.

    All of this is given up already, whatever the host may say. Servers that are there stay as they are. So do tasks of
    which the host alone knows whether a guest has a volume or an interface: it may come back with the guest, and what
    is let go of meanwhile others may get.
    """
    if not _is_marked(connection, host.node):
        return Closed()
    over = tasks.of(connection, sa.and_(row.host == host.host, tasks.ENDS_WITHOUT_HOST), limit)
    ended = _settled(connection, over, now, tasks.ENDS_WITHOUT_HOST)
    rests = sa.or_(resting.awaited(attempt.host), resting.resting(row.uuid))
    # The disks that a move left there may be wanted back.
    given_up = sa.and_(attempts.STALE, sa.or_(NOT_BUILT, row.task == Task.DELETING.value))
    stale = sa.and_(attempt.node == host.node, attempt.open, given_up, ~rests)
    left_behind = connection.execute(
        sa.select(attempt.instance, attempt.attempt)
        .join(instances, row.uuid == attempt.instance)
        .where(stale)
        .limit(limit)
    )
    mine = [(one.instance, one.attempt) for one in left_behind]
    if not mine:
        return Closed(ended=tuple(ended))
    released = _close(connection, mine, _groups(connection, [instance for instance, _ in mine]), now)
    return Closed(released=released, ended=(*ended, *_finish_deletes(connection, released, now)))


def close(connection: sa.Connection, host: FencedHost, now: int, limit: int) -> Closed:
    """Close up to `limit` open attempts of a fenced host.

    Builds go to another host, also past the point of no return: nobody is there to finish them. Servers that ran are
    ERROR and keep the host's name; those that are being deleted are deleted. Nothing is closed of a host that came back
    since it was looked up: it undoes what is open.
    """
    if not _is_in_effect(connection, host.node):
        return Closed()
    mine = [
        (one.instance, one.attempt)
        for one in connection.execute(
            sa.select(attempt.instance, attempt.attempt)
            .where(
                attempt.node == host.node,
                attempt.open,
                ~resting.awaited(attempt.host),
                ~resting.resting(attempt.instance),
            )
            .limit(limit)
        )
    ]
    if not mine:
        return Closed()
    groups = _groups(connection, [instance for instance, _ in mine])
    ended_deletes = _delete_soft_deleted(connection, mine, now)
    rescheduled = _reschedule(connection, mine, now)
    lost, ended = _lose(connection, mine, host, now)
    released = _close(connection, mine, groups, now)
    return Closed(
        released=released,
        rescheduled=rescheduled,
        lost=lost,
        ended=(*ended_deletes, *ended, *_finish_deletes(connection, released, now)),
    )


def _close(
    connection: sa.Connection, mine: Sequence[tuple[str, int]], groups: dict[str, GroupUuid], now: int
) -> tuple[ClaimKey, ...]:
    closed = connection.execute(
        attempt_rows.update()
        .where(sa.tuple_(attempt.instance, attempt.attempt).in_(mine))
        .values(open=False, outcome=OUTCOME, ended_at=now)
        .returning(attempt.instance, attempt.attempt, attempt.node)
    ).all()
    return tuple(ClaimKey(one.instance, one.attempt, one.node, groups.get(one.instance)) for one in closed)


def _finish_deletes(connection: sa.Connection, released: Iterable[ClaimKey], now: int) -> list[Ended]:
    over = [deletes.finish_if_closed(connection, instance, now) for instance in {key.instance for key in released}]
    return [one for one in over if one is not None]


def _settled(
    connection: sa.Connection,
    of_host: Iterable[tasks.HostTask],
    now: int,
    only_if: sa.ColumnElement[bool] | None = None,
) -> list[Ended]:
    why = f"The host of the server was fenced: {tasks.UNKNOWN}"
    over = [tasks.settle(connection, task, now, why, only_if) for task in of_host]
    return [one for one in over if one is not None]


def came_back(connection: sa.Connection, node: NodeUuid) -> int:
    """Take a fence back, because its host is heard. Return how many attempts are to be undone there.

    Those are the ones that were closed: all of the host's if the fence had taken effect, or else those alone that were
    given up meanwhile.
    """
    unfenced = {"fenced_at": None, "fence_marked_at": None, "fence_due_at": None}
    connection.execute(agents.update().where(agents.c.node == node).values(**unfenced))
    return _reopen(connection, node)


def _reopen(connection: sa.Connection, node: NodeUuid) -> int:
    return connection.execute(
        attempt_rows.update()
        .where(attempt.node == node, attempt.outcome == OUTCOME, ~attempt.open)
        .values(open=True, sent_at=None, sends=0)
    ).rowcount


def _is_in_effect(connection: sa.Connection, node: NodeUuid) -> bool:
    """Whether the fence of a host is still in effect; it stays so until the transaction ends: the row is written."""
    mine = sa.and_(agents.c.node == node, agents.c.fenced_at.is_not(None))
    return connection.execute(agents.update().where(mine).values(fenced_at=agents.c.fenced_at)).rowcount == 1


def _is_marked(connection: sa.Connection, node: NodeUuid) -> bool:
    """Whether a host is still marked; it stays so until the transaction ends, for the row is written."""
    mine = sa.and_(agents.c.node == node, agents.c.fence_marked_at.is_not(None))
    return connection.execute(agents.update().where(mine).values(fence_due_at=agents.c.fence_due_at)).rowcount == 1


def _groups(connection: sa.Connection, uuids: Sequence[InstanceUuid]) -> dict[str, GroupUuid]:
    found = connection.execute(sa.select(row.uuid, row.spec).where(row.uuid.in_(uuids)))
    specs = {one.uuid: unreadable.or_none(one, _spec) for one in found}
    return {uuid: spec.group.uuid for uuid, spec in specs.items() if spec is not None and spec.group is not None}


def _spec(found: Any) -> RequestSpec:
    spec: RequestSpec = load(found.spec, RequestSpec)
    return spec


def _reschedule(connection: sa.Connection, mine: Sequence[tuple[str, int]], now: int) -> int:
    return connection.execute(
        instances.update()
        .where(
            sa.tuple_(row.uuid, row.attempt).in_(mine), row.task.is_(None), moving(BUILT_BY_HOST, State.RESCHEDULING)
        )
        .values(**numbers.raised(), **builds.ended(None, now))
    ).rowcount


def _delete_soft_deleted(connection: sa.Connection, mine: Sequence[tuple[str, int]], now: int) -> list[Ended]:
    """Have soft-deleted servers deleted: of what their host had of them nothing can be restored."""
    found = connection.scalars(
        sa.select(row.uuid).where(sa.tuple_(row.uuid, row.attempt).in_(mine), row.state == State.SOFT_DELETED.value)
    )
    return soft_deletes.delete(connection, list(found), now)[1]


def _lose(
    connection: sa.Connection, mine: Sequence[tuple[str, int]], host: FencedHost, now: int
) -> tuple[int, list[Ended]]:
    """Write ERROR for what ran there. One that is ERROR for another reason, and has no host, keeps its fault; a row
    that is at its end stays there. So does one that is away: what becomes of its server is decided above the cells.
    """
    current = sa.and_(
        sa.tuple_(row.uuid, row.attempt).in_(mine),
        row.task.is_distinct_from(Task.DELETING.value),
        row.state != State.AWAY.value,
    )
    ended = _settled(connection, tasks.of(connection, current), now)
    ended += _keep_shelved(connection, sa.and_(current, row.host == host.host), now)
    lost = connection.execute(
        instances.update()
        .where(current, row.host == host.host, moving(frozenset(State) - BUILT_BY_HOST - ENDS, State.ERROR))
        .values(
            **numbers.raised(),
            **in_error(host.host, now),
            secrets=None,
            task=evacuations.task_after_fence(),
            sent_at=None,
        )
    ).rowcount
    evacuations.begin_anew(connection, {InstanceUuid(instance) for instance, _ in mine}, now)
    stays = sa.or_(row.host.is_(None), row.state.in_(constants(ENDS)))
    connection.execute(instances.update().where(current, stays).values(numbers.raised()))
    return lost, ended


def in_error(host: str, now: int) -> dict[str, Any]:
    """Return the columns of a server in ERROR because its host was fenced."""
    fault = Fault(
        code=500,
        message="The host of the server was fenced: it is dead for good",
        created_at=now,
        details=f"host {host} was fenced",
    )
    return {
        "state": State.ERROR.value,
        "fault": dump(fault),
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }


def _keep_shelved(connection: sa.Connection, lost: sa.ColumnElement[bool], now: int) -> list[Ended]:
    """Write that shelved servers are on no host any more: their content is in their images, and nothing is lost.

    So is that of a server whose host fell silent while it was unshelved there.
    """
    connection.execute(
        instances.update()
        .where(lost, moving(State.SHELVED, State.SHELVED_OFFLOADED), row.shelved.is_not(None), row.task.is_(None))
        .values(**offloads.off_host(now))
    )
    silent = (lost, row.state == State.ERROR.value, row.shelved.is_not(None), row.launched_at.is_(None))
    found = connection.execute(sa.select(row.uuid, row.attempt).where(*silent)).all()
    why = "The host of the server was fenced while it was unshelved there"
    over = [unshelves.give_up(connection, one.uuid, one.attempt, why, None, now) for one in found]
    return [one for one in over if one is not None]
