"""Lists of a cell's instances: what may be asked for, and the statements that find it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from skep.database.cell.instances import instance_of, live_columns
from skep.database.cell.tables import AWAY, SOFT_DELETED, UNDER_WAY, instances
from skep.database.cell.unreadable import or_none
from skep.database.constants import constants
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State, Task
from skep.domain.patterns import Pattern
from skep.domain.states import BUILD_STATES, FROZEN, UNSEEN, shown, status
from skep.domain.vifs import has_fixed_address

row = instances.c

_NOT_BY_ITSELF = FROZEN | UNSEEN
"""States of rows that are shown only if their mapping says so, or never."""

CHUNK = 500
"""Rows of a piece."""
FORMS = 256
"""Forms of queries whose statements are kept, those in use for longest: to make one takes longer than to run it."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of the instances is asked for; the order is created_at, uuid descending."""

    project_id: str | None = None
    user_id: str | None = None
    deleted: bool = False
    """Only deleted ones; otherwise only living ones, unless a time of the last change is given: then both."""
    soft_deleted: bool | None = None
    """Whether soft-deleted ones count as deleted (True: and as living ones, too); None: they do."""
    changed_since: int | None = None
    changed_before: int | None = None
    name: Pattern | None = None
    addresses: dict[int, Pattern] = {}
    """By the IP version: one of its fixed addresses must be found by the expression of its version."""
    statuses: frozenset[str] | None = None
    """As the API names them: `ACTIVE`, `BUILD`."""
    states: tuple[State, ...] | None = None
    task: Task | None = None
    power_state: int | None = None
    host: str | None = None
    flavorid: str | None = None
    image_id: str | None = None
    reservation_id: str | None = None
    availability_zone: str | None = None
    locked: bool | None = None
    uuids: tuple[str, ...] | None = None
    tags: frozenset[str] = frozenset()
    tags_any: frozenset[str] = frozenset()
    not_tags: frozenset[str] = frozenset()
    not_tags_any: frozenset[str] = frozenset()
    equal: dict[str, object] = {}
    """Further attributes of an `Instance` and what they must be."""
    moments: dict[str, tuple[int, int]] = {}
    """Times of an `Instance`, and between which they must be."""
    metadata: dict[str, str] = {}
    """Pairs that its metadata must have."""
    after: tuple[int, str] | None = None
    """(created_at, uuid) of the marker: only what comes after it."""
    limit: int | None = None

    @property
    def in_pieces(self) -> bool:
        """Whether so many rows may have to be read that they are read piece by piece."""
        return self.limit is None or self.judged_here

    @property
    def judged_here(self) -> bool:
        """Whether something is asked that no statement judges."""
        return bool(
            self.name is not None
            or self.addresses
            or self.equal
            or self.moments
            or self.metadata
            or self.tags
            or self.tags_any
            or self.not_tags
            or self.not_tags_any
        )

    def accepts(self, instance: Instance) -> bool:
        """Tell whether a living instance is asked for; the times of changes and the marker are not looked at."""
        same = (
            (self.project_id, instance.project_id),
            (self.user_id, instance.user_id),
            (self.host, instance.host),
            (self.flavorid, instance.flavor.flavorid),
            (self.image_id, instance.image.id if instance.image else None),
            (self.reservation_id, instance.reservation_id),
            (self.availability_zone, instance.availability_zone),
            (self.task, instance.task),
            (self.power_state, int(instance.power_state)),
            (self.locked, instance.locked),
        )
        if any(wanted is not None and wanted != found for wanted, found in same):
            return False
        if self.uuids is not None and instance.uuid not in self.uuids:
            return False
        if self.states is not None and instance.state not in self.states:
            return False
        if self.statuses is not None and status(instance.state, instance.task) not in self.statuses:
            return False
        return self.accepts_details(instance)

    def accepts_details(self, instance: Instance) -> bool:
        """Tell whether an instance passes what no statement judges."""
        if self.name is not None and not self.name.found_in(instance.name):
            return False
        if self.addresses and not has_fixed_address(instance.vifs, self.addresses):
            return False
        if any(getattr(instance, attribute) != wanted for attribute, wanted in self.equal.items()):
            return False
        for attribute, (first, last) in self.moments.items():
            moment: int | None = getattr(instance, attribute)
            if moment is None or not first <= moment <= last:
                return False
        if not self.metadata.items() <= instance.metadata.items():
            return False
        tags = frozenset(instance.tags)
        return (
            self.tags <= tags
            and (not self.tags_any or bool(self.tags_any & tags))
            and (not self.not_tags or not self.not_tags <= tags)
            and not self.not_tags_any & tags
        )


Row = TypeVar("Row")


class Piece(msgspec.Struct, Generic[Row], frozen=True):
    """What one statement gives of a list."""

    found: list[Row]
    """Frozen ones come first and beside the limit, whatever states are asked for. Whether a frozen one is shown, and in
    which state, is its mapping's to say.
    """
    looked_at: int
    """Rows that were read for it."""
    rest: ListQuery | None
    """Asks for what comes after these, if anything may. It finds frozen rows there again: each piece shows where all
    rows behind its beginning are, also if it is read a while after the one before.
    """


def list_all(connection: sa.Connection, query: ListQuery) -> list[Instance]:
    """List instances, as they are at one moment; frozen ones as a `Piece` has them."""
    piece = next_servers(connection, query)
    found = piece.found
    while piece.rest is not None:
        # Its frozen rows are among those of the first: a unit that reads sees one state of the database.
        piece = _next(connection, piece.rest, _ordered)
        found += piece.found
    return found


def next_servers(connection: sa.Connection, query: ListQuery) -> Piece[Instance]:
    """Return the first piece of a list of instances."""
    return _next(connection, query, _first)


def _next(
    connection: sa.Connection,
    query: ListQuery,
    statement: Callable[[_Form], sa.Select[Any] | sa.CompoundSelect[Any]],
) -> Piece[Instance]:
    """Return a piece: some rows do not pass, some cannot be read."""
    size = CHUNK if query.in_pieces else query.limit
    rows = connection.execute(statement(_form(query)), {**_values(query), "size": size}).all()
    judged, wanted = query.judged_here, query.limit
    found: list[Instance] = []
    for one in rows:
        is_frozen = one[_IS_FROZEN]
        if wanted == 0 and not is_frozen:
            continue
        instance = or_none(one, instance_of)
        if instance is None or (judged and not query.accepts_details(instance)):
            continue
        found.append(instance)
        if wanted is not None and not is_frozen:
            wanted -= 1
    rest = None
    if wanted != 0:
        settled = [(one.created_at, one.uuid) for one in rows if not one[_IS_FROZEN]]
        if len(settled) == size:
            rest = msgspec.structs.replace(query, after=min(settled), limit=wanted)
    return Piece(found, len(rows), rest)


class NamedServer(msgspec.Struct, frozen=True):
    """An instance in a list of names; the time of its creation gives its place in the list."""

    uuid: InstanceUuid
    name: str
    created_at: int


def next_names(connection: sa.Connection, query: ListQuery) -> Piece[Instance | NamedServer]:
    """Return the first piece of a list as `next_servers` does, those that are not frozen by their names alone.

    A row has some thirty columns, and its body takes longest to read.
    """
    if query.in_pieces:
        piece = next_servers(connection, query)
        return Piece([*piece.found], piece.looked_at, piece.rest)
    form, values = _form(query), _values(query)
    rows = connection.execute(_named(form), {**values, "size": query.limit}).all()
    found: list[Instance | NamedServer] = [
        NamedServer(uuid, name, created_at) for uuid, name, created_at, is_frozen in rows if not is_frozen
    ]
    if len(found) < len(rows):
        # A unit that reads sees one state of the database: these are the same rows.
        readable = (or_none(one, instance_of) for one in connection.execute(_frozen(_in_any_state(form)), values))
        found.extend(one for one in readable if one is not None)
    return Piece(found, len(rows), None)


class _Form(NamedTuple):
    """What of a query decides how its statements are written; the rest are their parameters."""

    equal: tuple[str, ...]
    """Columns that are compared with a value."""
    states: tuple[State, ...] | None
    task: Task | None
    statuses: frozenset[str] | None
    deleted: bool
    soft_deleted: bool | None
    uuids: bool
    changed_since: bool
    changed_before: bool
    after: bool


_COMPARED = (
    "project_id",
    "user_id",
    "host",
    "flavorid",
    "image_id",
    "reservation_id",
    "availability_zone",
    "power_state",
    "locked",
)
"""Columns that a query names as its own fields."""


def _form(query: ListQuery) -> _Form:
    return _Form(
        equal=tuple(name for name in _COMPARED if getattr(query, name) is not None),
        states=query.states,
        task=query.task,
        statuses=query.statuses,
        deleted=query.deleted,
        soft_deleted=query.soft_deleted,
        uuids=query.uuids is not None,
        changed_since=query.changed_since is not None,
        changed_before=query.changed_before is not None,
        after=query.after is not None,
    )


def _values(query: ListQuery) -> dict[str, object]:
    """Return the parameters of the statements for a query."""
    values: dict[str, object] = {f"{name}_is": getattr(query, name) for name in _COMPARED}
    values.update(uuids=query.uuids, since=query.changed_since, before=query.changed_before)
    if query.after is not None:
        values["after_time"], values["after_uuid"] = query.after
    return {name: value for name, value in values.items() if value is not None}


_IS_FROZEN = -1
"""Where a row says that it is frozen."""
_FROZEN: sa.Label[int] = sa.literal_column("1").label("is_frozen")
_OTHER: sa.Label[int] = sa.literal_column("0").label("is_frozen")


def _in_any_state(form: _Form) -> _Form:
    return form._replace(states=None, task=None, statuses=None)


@lru_cache(maxsize=FORMS)
def _first(form: _Form) -> sa.CompoundSelect[Any]:
    """Return the statement for all frozen rows, in whatever state, and the first of the others.

    One statement: to run another one takes longer than a few more rows of the same.
    """
    frozen = _frozen_parts(_in_any_state(form), *live_columns, row.created_at, _FROZEN)
    return sa.union_all(*frozen, sa.select(_ordered(form).subquery()))


@lru_cache(maxsize=FORMS)
def _frozen(form: _Form) -> sa.CompoundSelect[Any]:
    """Return the statement for frozen rows alone."""
    return sa.union_all(*_frozen_parts(form, *live_columns))


def _frozen_parts(form: _Form, *columns: sa.ColumnElement[Any]) -> list[sa.Select[Any]]:
    """Return statements for frozen rows, each by one of the partial indexes in which these are.

    SQLite takes the index of a column that is compared itself, and reads every server of a project for a few rows.
    """
    conditions = _conditions(form, lambda column: sa.func.coalesce(column, column))
    parts = (sa.and_(UNDER_WAY, row.state.in_(constants(FROZEN))), AWAY)
    return [sa.select(*columns).where(part, *conditions) for part in parts]


@lru_cache(maxsize=FORMS)
def _ordered(form: _Form) -> sa.Select[Any]:
    """Return the statement for the others, in their order."""
    return _in_order(form, *live_columns, row.created_at, _OTHER)


@lru_cache(maxsize=FORMS)
def _named(form: _Form) -> sa.CompoundSelect[Any]:
    """Return the statement for the names of all frozen rows, in whatever state, and of the first of the others."""
    names = (row.uuid, row.name, row.created_at)
    others = sa.select(_in_order(form, *names, _OTHER).subquery())
    return sa.union_all(*_frozen_parts(_in_any_state(form), *names, _FROZEN), others)


def _in_order(form: _Form, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(*columns)
        .where(row.state.not_in(constants(_NOT_BY_ITSELF)), *_conditions(form))
        .order_by(row.created_at.desc(), row.uuid.desc())
        .limit(sa.bindparam("size", type_=sa.Integer))
    )


def _itself(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return column


def _conditions(
    form: _Form, compared: Callable[[sa.Column[Any]], sa.ColumnElement[Any]] = _itself
) -> list[sa.ColumnElement[bool]]:
    """Return what is asked of a row. `compared`: what stands for a column that has to be equal to a value."""
    wanted = [compared(row[name]) == sa.bindparam(f"{name}_is", type_=row[name].type) for name in form.equal]
    if form.uuids:
        wanted.append(row.uuid.in_(sa.bindparam("uuids", expanding=True)))
    states, task = form.states, form.task
    if states is not None:
        wanted.append(_shown_as(lambda state, _: state in states))
    if task is not None:
        wanted.append(_shown_as(lambda _, of_row: of_row is task))
    if form.statuses is not None:
        wanted.append(sa.or_(sa.false(), *(_has_status(one) for one in sorted(form.statuses))))
    wanted += _in_time(form)
    if form.after:
        marker = sa.tuple_(sa.bindparam("after_time", type_=sa.BigInteger), sa.bindparam("after_uuid", type_=sa.String))
        wanted.append(sa.tuple_(row.created_at, row.uuid) < marker)
    return wanted


def _in_time(form: _Form) -> list[sa.ColumnElement[bool]]:
    wanted: list[sa.ColumnElement[bool]] = []
    if form.deleted:
        kept = [SOFT_DELETED] if form.soft_deleted is not False else []
        wanted.append(sa.or_(row.deleted_at.is_not(None), *kept))
    elif not (form.changed_since or form.changed_before):
        wanted.append(row.deleted_at.is_(None))
        if not form.soft_deleted:
            wanted.append(row.state != State.SOFT_DELETED.value)
    if form.changed_since:
        wanted.append(row.changed_at >= sa.bindparam("since"))
    if form.changed_before:
        wanted.append(row.changed_at <= sa.bindparam("before"))
    return wanted


def _has_status(wanted: str) -> sa.ColumnElement[bool]:
    """Say of a row that `domain.states.status` calls it so."""
    return _shown_as(lambda state, task: status(state, task) == wanted)


def _shown_as(is_wanted: Callable[[State, Task | None], bool]) -> sa.ColumnElement[bool]:
    """Say of a row that users see it in a wanted state and under a wanted task."""
    built = _pairs(is_wanted, BUILD_STATES, shelved=False)
    unshelved = _pairs(is_wanted, BUILD_STATES, shelved=True)
    parts = _pairs(is_wanted, frozenset(State) - BUILD_STATES, shelved=False)
    parts += [sa.and_(row.shelved.is_(None), one) for one in built]
    parts += [sa.and_(row.shelved.is_not(None), one) for one in unshelved]
    return sa.or_(sa.false(), *parts)


def _pairs(
    is_wanted: Callable[[State, Task | None], bool], states: frozenset[State], *, shelved: bool
) -> list[sa.ColumnElement[bool]]:
    """Return conditions for the wanted pairs of one of these states and a task."""
    tasks: dict[frozenset[State], list[Task | None]] = {}
    for task in (None, *Task):
        wanted = frozenset(one for one in states if is_wanted(*shown(one, task, shelved=shelved)))
        if wanted:
            tasks.setdefault(wanted, []).append(task)
    return [sa.and_(row.state.in_(constants(wanted)), _under(some)) for wanted, some in tasks.items()]


def _under(tasks: list[Task | None]) -> sa.ColumnElement[bool]:
    if len(tasks) == len(Task) + 1:
        return sa.true()
    named = row.task.in_(constants(task.value for task in tasks if task is not None))
    return sa.or_(row.task.is_(None), named) if None in tasks else named


def find(connection: sa.Connection, uuid: InstanceUuid) -> Instance | None:
    """Return an instance, a deleted one too; None when there is none, or its row cannot be read."""
    found = connection.execute(_ONE, {"of": uuid}).first()
    return None if found is None else or_none(found, instance_of)


_ONE = sa.select(*live_columns).where(row.uuid == sa.bindparam("of"))


def count_by_state(connection: sa.Connection) -> dict[str, int]:
    """Return how many living rows are in each state, but for those that no user sees."""
    counted = connection.execute(
        sa.select(row.state, sa.func.count().label("servers"))
        .where(row.deleted_at.is_(None), row.state.not_in(constants(UNSEEN)))
        .group_by(row.state)
        .order_by(row.state)
    )
    return {one.state: one.servers for one in counted}
