"""The writes of a cell's database that went back in time: who is waited for, what hosts told, what rows follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database import timelines
from skep.database.cell import attempts, numbers
from skep.database.cell.instances import resized
from skep.database.cell.resting import AWAITED, MISSING
from skep.database.cell.tables import (
    UNDER_WAY,
    agents,
    found_guests,
    instances,
    migrations,
    recovering_hosts,
    recovering_instances,
    time,
)
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.database.timelines import RecoveryRow
from skep.database.upsert import insert
from skep.domain.guests import state_after
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, PowerState, Shelved, State, Task
from skep.domain.moves import Size
from skep.domain.recovery import Adopt, Doubt, FoundGuest, GoOn, RowBefore
from skep.domain.request_specs import RequestSpec
from skep.domain.states import GUEST_ON_HOST, PLACELESS
from skep.domain.timelines import Moment

row = instances.c
host = recovering_hosts.c
found = found_guests.c


UNDO = "undo"
"""Phase of a guest that an operator wants destroyed."""


class AwaitedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that has not told what it has."""

    node: NodeUuid
    host: str
    told_at: int | None


def begin(connection: sa.Connection, seen: Moment | None, reason: str, now: int) -> None:
    """Begin a recovery: all hosts are waited for, and so is every instance that was being built."""
    timelines.begin_anew(connection, time, seen, reason, now)
    connection.execute(recovering_hosts.delete())
    connection.execute(found_guests.delete())
    connection.execute(recovering_instances.delete())
    connection.execute(recovering_hosts.insert().from_select(["node", "host"], sa.select(agents.c.node, agents.c.host)))
    under_way = sa.select(row.uuid).where(UNDER_WAY, row.deleted_at.is_(None))
    connection.execute(recovering_instances.insert().from_select(["instance"], under_way))


def has_lost(connection: sa.Connection, seen: Moment) -> bool:
    """Tell whether this database does not hold a moment of its own that somebody saw."""
    return timelines.has_lost(connection, time, seen)


def begin_if_lost(connection: sa.Connection, seen: Moment, who: str, now: int) -> bool:
    """Begin a recovery if the database has lost what `who` saw; tell whether it did."""
    if not has_lost(connection, seen):
        return False
    begin(connection, seen, f"{who} saw timeline {seen.timeline}, tick {seen.tick}", now)
    return True


def under_way(connection: sa.Connection) -> RecoveryRow | None:
    """Return how the recovery stands; None when there is none."""
    return timelines.recovery(connection, time)


def expect(connection: sa.Connection, node: NodeUuid, name: str) -> None:
    """Wait for a host too that the database does not know, because it came in the time that is lost."""
    statement = insert(connection, recovering_hosts).values(node=node, host=name)
    connection.execute(statement.on_conflict_do_nothing())


def awaited_hosts(connection: sa.Connection) -> list[AwaitedHost]:
    """Return the hosts that have not told yet what they have."""
    rows = connection.execute(sa.select(host.node, host.host, host.told_at).where(AWAITED).order_by(host.host))
    return [AwaitedHost(node=NodeUuid(one.node), host=one.host, told_at=one.told_at) for one in rows]


def note_told(connection: sa.Connection, nodes: Sequence[NodeUuid], now: int) -> None:
    """Note that hosts were asked for what they have."""
    connection.execute(recovering_hosts.update().where(host.node.in_(nodes)).values(told_at=now))


def release(connection: sa.Connection, node: NodeUuid, now: int) -> bool:
    """Wait for a host no longer; False when it is not waited for."""
    mine = sa.and_(host.node == node, AWAITED)
    return connection.execute(recovering_hosts.update().where(mine).values(released_at=now)).rowcount == 1


def take_report(connection: sa.Connection, guests: Sequence[FoundGuest]) -> None:
    """Store what a host tells of its guests, over what it told before of the same attempts."""
    if not guests:
        return
    statement = insert(connection, found_guests)
    columns = {column.name: statement.excluded[column.name] for column in found_guests.c if not column.primary_key}
    keys = ["node", "instance", "attempt"]
    values = [
        {
            "node": one.node,
            "instance": one.instance,
            "attempt": one.attempt,
            "host": one.host,
            "highest": one.highest,
            "phase": one.phase,
            "power_state": int(one.power_state),
            "launched_at": one.launched_at,
            "described": dump(one.described) if one.described is not None else None,
            "deleted": one.deleted,
        }
        for one in guests
    ]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=columns), values)


def end_report(connection: sa.Connection, node: NodeUuid, name: str, now: int) -> None:
    """Note that a host has told all. What it has beyond its rows is decided about; what it lacks is noted."""
    connection.execute(recovering_hosts.update().where(host.node == node).values(reported_at=now))
    ahead = (
        sa.select(found.instance)
        .join(instances, row.uuid == found.instance)
        .where(
            found.node == node,
            found.phase != "none",
            row.deleted_at.is_(None),
            sa.or_(
                found.attempt > numbers.given(),
                # It was begun beside the one that the row names, which was left for it in the lost time.
                sa.and_(found.attempt > row.attempt, found.phase == "whole"),
                sa.and_(found.attempt == row.attempt, row.host.is_distinct_from(name)),
                # The database has lost the move for which it was put aside.
                sa.and_(
                    found.attempt == row.attempt,
                    found.phase == "aside",
                    row.task.is_distinct_from(Task.DELETING.value),
                    ~_moves(),
                ),
                sa.and_(
                    found.attempt == row.attempt,
                    found.phase == "whole",
                    row.state == State.ERROR.value,
                    row.launched_at.is_(None),
                ),
            ),
        )
        .distinct()
    )
    _hold(connection, list(connection.scalars(ahead)), None)
    there = sa.exists().where(found.node == node, found.instance == row.uuid, found.phase != "none")
    missing = sa.select(row.uuid).where(
        row.host == name,
        row.node == node,
        row.state.in_(constants(GUEST_ON_HOST)),
        row.task.is_distinct_from(Task.DELETING.value),
        row.deleted_at.is_(None),
        ~there,
    )
    _hold(connection, list(connection.scalars(missing)), MISSING)


def _moves() -> sa.ColumnElement[bool]:
    """Say of an instance that a move of it is under way, as far as the database knows."""
    return sa.exists().where(migrations.c.instance == row.uuid, migrations.c.step.is_not(None))


def _hold(connection: sa.Connection, uuids: Sequence[str], doubt: str | None) -> None:
    if uuids:
        values = [{"instance": uuid, "doubt": doubt} for uuid in uuids]
        statement = insert(connection, recovering_instances)
        if doubt is None:
            # What another host has of it counts more than that its own host lacks it.
            missing = recovering_instances.c.doubt == MISSING
            statement = statement.on_conflict_do_update(
                index_elements=["instance"], set_={"doubt": None}, where=missing
            )
        else:
            statement = statement.on_conflict_do_nothing()
        connection.execute(statement, values)


def undecided(connection: sa.Connection, after: str, limit: int) -> list[InstanceUuid]:
    """Return instances that are held and not doubtful, by their UUIDs, some at a time."""
    held = recovering_instances.c
    query = sa.select(held.instance).where(held.doubt.is_(None), held.instance > after)
    return [InstanceUuid(one) for one in connection.scalars(query.order_by(held.instance).limit(limit))]


def guests_of(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, list[FoundGuest]]:
    """Return what hosts told of instances."""
    rows = connection.execute(sa.select(found_guests).where(found.instance.in_(uuids)))
    guests: dict[str, list[FoundGuest]] = {}
    for one in rows:
        guests.setdefault(one.instance, []).append(_guest(one))
    return guests


def rows_before(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, RowBefore]:
    """Return the rows of instances that are not deleted, as a decision looks at them."""
    told = sa.exists(sa.select(host.node).where(host.host == row.host, host.reported_at.is_not(None)))
    query = sa.select(row.uuid, row.state, row.attempt, row.host, row.task, row.launched_at, told.label("told"))
    return {
        one.uuid: RowBefore(
            state=State(one.state),
            attempt=one.attempt,
            host=one.host,
            built=one.launched_at is not None,
            deleting=one.task == Task.DELETING.value,
            host_told=bool(one.told),
        )
        for one in connection.execute(query.where(row.uuid.in_(uuids), row.deleted_at.is_(None)))
    }


def is_held(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Tell whether an instance is held."""
    held = sa.select(recovering_instances.c.instance).where(recovering_instances.c.instance == uuid)
    return connection.execute(held).first() is not None


def let_go(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Hold an instance no longer; False when it was not held."""
    gone = recovering_instances.delete().where(recovering_instances.c.instance == uuid)
    return connection.execute(gone).rowcount == 1


def want_undone(connection: sa.Connection, guest: FoundGuest) -> None:
    """Note that an operator wants this guest destroyed: this attempt, on this host."""
    mine = sa.and_(found.instance == guest.instance, found.node == guest.node, found.attempt == guest.attempt)
    connection.execute(found_guests.update().where(mine).values(phase=UNDO))


def to_undo(connection: sa.Connection) -> list[tuple[FoundGuest, bool]]:
    """Return the guests that are to be destroyed because an operator says so; beside each, whether it alone is.

    Its host has an older attempt of the server then, which stays: the disks that a move has put aside, say.
    """
    other = found_guests.alias().c
    older = sa.exists(
        sa.select(other.attempt).where(
            other.node == found.node,
            other.instance == found.instance,
            other.attempt < found.attempt,
            other.phase.not_in(("none", UNDO)),
        )
    )
    query = sa.select(found_guests, older.label("alone")).where(found.phase == UNDO)
    return [(_guest(one), bool(one.alone)) for one in connection.execute(query)]


def note_undone(connection: sa.Connection, uuid: InstanceUuid, name: str, upto: int) -> None:
    """Note that a host has nothing of an instance any more, up to an attempt; which it has heard of stays known."""
    _note_undone(connection, uuid, sa.and_(found.host == name, found.attempt <= upto))


def is_undone(connection: sa.Connection, uuid: InstanceUuid, name: str, attempt: int, *, left: bool) -> bool:
    """Tell whether an operator wants this attempt undone; note that its host did it, unless something is `left`."""
    mine = sa.and_(found.instance == uuid, found.host == name, found.attempt == attempt)
    if connection.execute(sa.select(found.attempt).where(mine, found.phase == UNDO)).first() is None:
        return False
    if not left:
        _note_undone(connection, uuid, mine)
    return True


def _note_undone(connection: sa.Connection, uuid: InstanceUuid, which: sa.ColumnElement[bool]) -> None:
    """Write it. A built server of which nothing is left anywhere is missing from then on, and may be deleted."""
    mine = sa.and_(found.instance == uuid, which, found.phase != "none")
    if connection.execute(found_guests.update().where(mine).values(phase="none", described=None)).rowcount == 0:
        return
    held = recovering_instances.c
    connection.execute(
        recovering_instances.update()
        .where(
            held.instance == uuid,
            held.doubt.is_not(None),
            ~sa.exists().where(found.instance == uuid, found.phase != "none"),
            sa.exists().where(row.uuid == uuid, row.state.in_(constants(GUEST_ON_HOST))),
        )
        .values(doubt=MISSING)
    )


def put_aside_since(connection: sa.Connection, uuid: InstanceUuid, attempt: int, name: str, move: str) -> bool:
    """Hold a server whose host has put its guest aside for a move that the database does not know; tell whether it did.

    The guest may run where that move went to, so the row does not go on as if it ran here.
    """
    here = sa.and_(
        row.uuid == uuid,
        row.attempt == attempt,
        row.host == name,
        row.deleted_at.is_(None),
        row.task.is_distinct_from(Task.DELETING.value),
        ~sa.exists().where(migrations.c.uuid == move),
    )
    if connection.execute(sa.select(row.uuid).where(here)).first() is None:
        return False
    told = sa.and_(found.instance == uuid, found.host == name, found.attempt == attempt, found.phase == "whole")
    connection.execute(found_guests.update().where(told).values(phase="aside"))
    reason = f"a move had begun: attempt {attempt} on {name} was put aside since"
    statement = insert(connection, recovering_instances).values(instance=uuid, doubt=reason)
    connection.execute(statement.on_conflict_do_update(index_elements=["instance"], set_={"doubt": reason}))
    return True


def doubt(connection: sa.Connection, uuid: InstanceUuid, why: Doubt) -> None:
    """Leave an instance to an operator."""
    connection.execute(
        recovering_instances.update().where(recovering_instances.c.instance == uuid).values(doubt=why.reason)
    )


def doubtful(connection: sa.Connection) -> list[tuple[InstanceUuid, str]]:
    """Return the living instances that are left to an operator, each with the reason."""
    held = recovering_instances.c
    lives = sa.exists(sa.select(row.uuid).where(row.uuid == held.instance, row.deleted_at.is_(None)))
    rows = connection.execute(sa.select(held.instance, held.doubt).where(held.doubt.is_not(None), lives))
    return [(InstanceUuid(one.instance), one.doubt) for one in rows]


def strangers(connection: sa.Connection) -> list[InstanceUuid]:
    """Return what hosts told of that the cell has no row of, and that nobody wants destroyed."""
    known = sa.exists(sa.select(row.uuid).where(row.uuid == found.instance))
    odd = sa.select(found.instance).where(found.phase.not_in(("none", UNDO)), ~known).distinct()
    return [InstanceUuid(one) for one in connection.scalars(odd)]


def adopt(connection: sa.Connection, uuid: InstanceUuid, wanted: Adopt, now: int) -> None:
    """Have the row follow a guest or build: its attempt, its host, and the state that goes with it.

    Its next number is above all that hosts have heard of. What they have begun beside it without a guest is undone,
    each attempt alone.
    """
    guest = wanted.guest
    told = guests_of(connection, [uuid]).get(uuid, [])
    built = guest.phase == "whole"
    state = State.SPAWNING if guest.phase == "spawning" else State.BUILDING
    if built:
        state = state_after(State.ACTIVE, guest.power_state)
    columns = (row.attempt, row.state, row.launched_at, row.flavorid, row.body, row.spec, row.shelved)
    before = connection.execute(sa.select(*columns).where(row.uuid == uuid)).first()
    if before is None:
        return
    values: dict[str, Any] = {
        "attempt": guest.attempt,
        "highest": numbers.given(max(one.highest for one in (guest, *told))),
        "host": guest.host,
        "node": guest.node,
        "owner": None,
        "sent_at": now,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    settled = State(before.state) in GUEST_ON_HOST and before.attempt == guest.attempt
    if not settled:
        values |= {"state": state.value, "fault": None, **_unshelved(before, built=built)}
    if built:
        launched = before.launched_at or guest.launched_at or now
        values |= {"secrets": None, "launched_at": launched, "power_state": int(guest.power_state)}
        values |= _as_described(guest, before)
    connection.execute(instances.update().where(row.uuid == uuid).values(**values))
    fresh = attempts.NewAttempt(instance=uuid, attempt=guest.attempt, node=guest.node, host=guest.host, now=now)
    attempts.begin(connection, [fresh])
    connection.execute(
        attempt_rows.update()
        .where(attempt_rows.c.instance == uuid, attempt_rows.c.attempt == guest.attempt)
        .values(
            open=True,
            node=guest.node,
            host=guest.host,
            outcome="built" if built else None,
            error=None,
            message=None,
            ended_at=now if built else None,
        )
    )
    _undo_beside(connection, guest, told, now)
    let_go(connection, uuid)


def _undo_beside(connection: sa.Connection, guest: FoundGuest, told: Sequence[FoundGuest], now: int) -> None:
    """Have hosts undo the builds and targets of moves that they told of beside a guest, or a build, that is adopted.

    What is put aside stays: it may have the only disks. An older attempt that the database knows is undone as its row
    says.
    """
    beside = [one for one in told if one.phase in ("building", "spawning") and one.attempt != guest.attempt]
    for one in beside:
        fresh = attempts.NewAttempt(
            instance=one.instance, attempt=one.attempt, node=one.node, host=one.host, now=now, role="move_target"
        )
        attempts.begin(connection, [fresh])
        if one.attempt > guest.attempt:
            attempts.give_up(connection, one.instance, one.attempt, now)


def _as_described(guest: FoundGuest, before: Any) -> dict[str, Any]:
    """Return what a server is: it was resized in the time that is lost if its guest has another flavor."""
    described = guest.described
    if described is None or described.flavor.flavorid == before.flavorid:
        return {}
    size = Size(
        flavor=described.flavor,
        devices=load(before.spec, RequestSpec).devices,
        disk_config=described.disk_config,
    )
    return resized(before.body, before.spec, size)


def _unshelved(before: Any, *, built: bool) -> dict[str, Any]:
    """Return the columns of a row that was offloaded, and whose server was unshelved in the lost time."""
    if before.shelved is None or built:
        return {"shelved": None}
    shelved: Shelved = load(before.shelved, Shelved)
    kept = msgspec.structs.replace(shelved, launched_at=before.launched_at or shelved.launched_at)
    return {"shelved": dump(kept), "launched_at": None}


def go_on(connection: sa.Connection, uuid: InstanceUuid, how: GoOn, now: int) -> None:
    """Let the row go on as it stood; its next attempt is above all that hosts have heard of."""
    raised = numbers.given(how.highest)
    values: dict[str, Any] = {"step_at": now, "changed_at": now, "owner": None, "sent_at": None}
    if how.elsewhere:
        values |= {"attempt": raised, "state": State.RESCHEDULING.value, "host": None, "node": None}
    connection.execute(instances.update().where(row.uuid == uuid, UNDER_WAY).values(**values))
    if not how.elsewhere:
        waits = sa.and_(UNDER_WAY, row.uuid == uuid, row.state.in_(constants(PLACELESS)))
        connection.execute(instances.update().where(waits).values(attempt=raised))
    let_go(connection, uuid)


def end_if_settled(connection: sa.Connection, timeline: int) -> bool:
    """End the recovery if nobody is waited for and nothing is undecided; what is doubtful stays so."""
    state = under_way(connection)
    if state is None or state.compared_at is None or awaited_hosts(connection) or undecided(connection, "", 1):
        return False
    doubtful = sa.select(recovering_instances.c.instance)
    unknown = sa.select(row.uuid).where(row.uuid == found.instance)
    plain = sa.and_(found.instance.not_in(doubtful), sa.or_(found.phase == "none", sa.exists(unknown)))
    _raise_numbers(connection, found.instance.not_in(doubtful))
    connection.execute(found_guests.delete().where(plain))
    connection.execute(recovering_hosts.delete())
    return timelines.end(connection, time, timeline)


def _raise_numbers(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Have servers give no number again that hosts have heard of. Before the end it says what the row has lost."""
    told = sa.select(found.instance, sa.func.max(found.highest).label("highest")).where(which).group_by(found.instance)
    heard = told.subquery().c
    lower = sa.select(row.uuid, heard.highest).where(
        row.uuid == heard.instance, row.deleted_at.is_(None), heard.highest > numbers.given()
    )
    values = [{"of": one.uuid, "heard": one.highest} for one in connection.execute(lower)]
    if values:
        raising = instances.update().where(row.uuid == sa.bindparam("of")).values(highest=sa.bindparam("heard"))
        connection.execute(raising, values)


def _guest(one: Any) -> FoundGuest:
    return FoundGuest(
        node=NodeUuid(one.node),
        host=one.host,
        instance=InstanceUuid(one.instance),
        attempt=one.attempt,
        highest=one.highest,
        phase=one.phase,
        power_state=PowerState(one.power_state),
        launched_at=one.launched_at,
        described=load(one.described, Instance) if one.described is not None else None,
        deleted=one.deleted,
    )
