"""Actions: what users asked of an instance, and the events of each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import action_events, actions, attempts
from skep.database.upsert import new_only
from skep.domain.actions import ACTIONS, Ended
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.vifs import LostPort
from skep.domain.wording import without_hosts

CREATE = "create"
_LATEST = 2**63 - 1


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a user asked of an instance."""

    instance: InstanceUuid
    request_id: str
    action: str
    """`CREATE`, or `Action.record`."""
    user_id: str
    project_id: str
    started_at: int
    updated_at: int | None = None
    message: str | None = None
    """Why it failed, as its owner may read it: without names of hosts. None: it did not."""


class ActionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an action, on one host."""

    instance: InstanceUuid
    request_id: str
    event: str
    started_at: int
    host: str | None = None
    finished_at: int | None = None
    result: str | None = None
    """`Success` or `Error`"""
    traceback: str | None = None
    details: str | None = None


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions of an instance are wanted, newest first. Times are microseconds since the epoch."""

    limit: int
    marker: str | None = None
    """The request of the one after which they begin."""
    since: int = -_LATEST
    before: int = _LATEST

    def takes(self, action: Action) -> bool:
        """Tell whether an action changed for the last time within the time that is asked for."""
        return self.since <= (action.updated_at or action.started_at) <= self.before


def begin(connection: sa.Connection, new: Sequence[Action]) -> None:
    """Write actions; one that is there already stays as it is."""
    if new:
        connection.execute(new_only(connection, actions), [msgspec.structs.asdict(one) for one in new])


def action_of(instance: InstanceUuid, action: str, context: RequestContext, now: int) -> Action:
    """Return the action that `context` asks of `instance`."""
    return Action(
        instance=instance,
        request_id=context.request_id,
        action=action,
        user_id=context.user_id,
        project_id=context.project_id,
        started_at=now,
    )


def tell_lost(connection: sa.Connection, server: Instance, lost: Sequence[LostPort], now: int) -> None:
    """Tell the owner of a server of interfaces that it has lost: each once, as a detach that no user asked for."""
    told = [
        Action(
            instance=server.uuid,
            request_id=f"req-{one.id}",
            action=ACTIONS["detach_interface"].record,
            user_id="",
            project_id=server.project_id,
            started_at=now,
            updated_at=now,
            message=one.for_owner,
        )
        for one in lost
    ]
    begin(connection, told)


def finish(connection: sa.Connection, event: ActionEvent) -> None:
    """Write an event that is over, and its action's outcome with it: an error, unless this very event ends well later.

    So it does where nothing was known of it for a while.
    """
    mine = {"of": event.instance, "asked": event.request_id, "now": event.finished_at}
    if event.result == "Error":
        connection.execute(_FAILED, {**mine, "why": _told_to_owner(connection, event)})
    else:
        connection.execute(_WENT_WELL, {**mine, "what": event.event})
    connection.execute(_WRITE, msgspec.structs.asdict(event))


_MINE = sa.and_(actions.c.instance == sa.bindparam("of"), actions.c.request_id == sa.bindparam("asked"))
_OVER = actions.update().where(_MINE).values(updated_at=sa.bindparam("now"))
_WENT_WELL = _OVER.values(
    message=sa.case(
        (
            sa.exists().where(
                action_events.c.instance == actions.c.instance,
                action_events.c.request_id == actions.c.request_id,
                action_events.c.event == sa.bindparam("what"),
            ),
            sa.null(),
        ),
        else_=actions.c.message,
    )
)
_FAILED = _OVER.values(message=sa.bindparam("why"))
_HOSTS = (
    sa.select(attempts.c.host).where(attempts.c.instance == sa.bindparam("of"), attempts.c.host.is_not(None)).distinct()
)
_WRITE = action_events.insert()
_BEGAN = sa.select(actions.c.started_at).where(_MINE)
"""Made once: making a statement costs more than running it."""


def _told_to_owner(connection: sa.Connection, event: ActionEvent) -> str:
    """Return why an event failed; what hosts say may have their names, of all on which the server has been."""
    hosts = {str(one.host) for one in connection.execute(_HOSTS, {"of": event.instance})}
    return without_hosts(event.details or "Error", hosts | ({event.host} if event.host else set()))


def began_at(connection: sa.Connection, instance: InstanceUuid, request_id: str) -> int | None:
    """Return when an action began; None where it is not known."""
    return connection.execute(_BEGAN, {"of": instance, "asked": request_id}).scalar_one_or_none()


def ended(connection: sa.Connection, over: Ended) -> None:
    """Write the event of an action that is over, or in doubt; the action alone where it has no events."""
    event = ACTIONS[over.action].event
    if event is None:
        mine = {"of": over.instance, "asked": over.context.request_id}
        connection.execute(_OVER, {**mine, "now": over.ended_at})
        return
    finish(
        connection,
        ActionEvent(
            instance=over.instance,
            request_id=over.context.request_id,
            event=event,
            host=over.host,
            started_at=over.started_at,
            finished_at=over.ended_at,
            result="Error" if over.error else "Success",
            details=over.error,
        ),
    )


def list_of(connection: sa.Connection, instance: InstanceUuid, *, limit: int) -> list[Action]:
    """Return the newest actions of an instance, so many at most, newest first."""
    return [_action(one) for one in connection.execute(_NEWEST, {"of": instance, "most": limit}).mappings()]


_NEWEST = (
    sa.select(actions)
    .where(actions.c.instance == sa.bindparam("of"))
    .order_by(actions.c.started_at.desc(), actions.c.request_id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def page_of(connection: sa.Connection, instance: InstanceUuid, query: ActionQuery) -> list[Action] | None:
    """Return the actions of an instance that a query wants, newest first; None where its marker names none.

    A create is among them whenever it changed: what became of it stands in its attempts.
    """
    began: int | None = _LATEST
    if query.marker is not None:
        began = began_at(connection, instance, query.marker)
        if began is None:
            return None
    wanted = {
        "of": instance,
        "most": query.limit,
        "began": began,
        "marker": query.marker or "",
        "since": query.since,
        "before": query.before,
    }
    return [_action(one) for one in connection.execute(_PAGE, wanted).mappings()]


_PAGE = _NEWEST.where(
    actions.c.started_at <= sa.bindparam("began"),
    sa.or_(actions.c.started_at < sa.bindparam("began"), actions.c.request_id > sa.bindparam("marker")),
    sa.or_(
        actions.c.action == CREATE,
        sa.func.coalesce(actions.c.updated_at, actions.c.started_at).between(
            sa.bindparam("since"), sa.bindparam("before")
        ),
    ),
)
"""Made once: clients ask for the actions of servers again and again. The first bound is what the index can find."""


def one_of(connection: sa.Connection, instance: InstanceUuid, request_id: str) -> Action | None:
    """Return the action of an instance that a request asked for."""
    found = connection.execute(_ONE, {"of": instance, "asked": request_id}).mappings().first()
    return None if found is None else _action(found)


_ONE = sa.select(actions).where(_MINE)


def events_of(connection: sa.Connection, instance: InstanceUuid, request_id: str) -> list[ActionEvent]:
    """Return the events of an action, newest first."""
    found = connection.execute(
        sa.select(action_events)
        .where(action_events.c.instance == instance, action_events.c.request_id == request_id)
        .order_by(action_events.c.started_at.desc(), action_events.c.id.desc())
    ).mappings()
    return [_event(one) for one in found]


def events_of_newest(connection: sa.Connection, instance: InstanceUuid, *, limit: int) -> list[ActionEvent]:
    """Return the events of the newest actions of an instance, as `list_of` has them, oldest first."""
    found = connection.execute(_EVENTS_OF_NEWEST, {"of": instance, "most": limit}).mappings()
    return [_event(one) for one in found]


_EVENTS_OF_NEWEST = (
    sa.select(action_events)
    .where(
        action_events.c.instance == sa.bindparam("of"),
        action_events.c.request_id.in_(_NEWEST.with_only_columns(actions.c.request_id)),
    )
    .order_by(action_events.c.id)
)


def _action(found: sa.RowMapping) -> Action:
    return Action(**{key: found[key] for key in Action.__struct_fields__})


def _event(found: sa.RowMapping) -> ActionEvent:
    return convert({key: found[key] for key in ActionEvent.__struct_fields__}, ActionEvent)
