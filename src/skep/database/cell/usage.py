"""The servers of a cell that ran in a period."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.cell.unreadable import or_none
from skep.database.constants import constants
from skep.database.stored import load
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import State, Task
from skep.domain.states import FROZEN, UNSEEN, shown, vm_state
from skep.domain.usage import Period, UsedServer

row = instances.c


BATCH = 500
"""Rows held in memory as they are stored."""


class _Body(msgspec.Struct, frozen=True):
    """What of the body of a row says how large the server is."""

    flavor: Flavor


def flavor_of(body: bytes) -> Flavor:
    """Return the flavor of a server from the body of its row."""
    read: _Body = load(body, _Body)
    return read.flavor


def list_used(
    connection: sa.Connection,
    period: Period,
    project_id: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int | None = None,
) -> list[UsedServer]:
    """Return the servers that ran in a period, by project and id; `after`: those behind this project and id.

    One that is between two cells is left out of both.
    """
    wanted = [
        row.launched_at < period.until,
        sa.or_(row.terminated_at.is_(None), row.terminated_at > period.since),
        row.state.not_in(constants(FROZEN | UNSEEN)),
    ]
    if project_id is not None:
        wanted.append(row.project_id == project_id)
    if after is not None:
        wanted.append(sa.tuple_(row.project_id, row.uuid) > sa.tuple_(*after))
    columns = (
        row.uuid,
        row.project_id,
        row.name,
        row.body,
        row.state,
        row.task,
        row.shelved.is_not(None).label("shelved"),
        row.launched_at,
        row.terminated_at,
    )
    query = sa.select(*columns).where(*wanted).order_by(row.project_id, row.uuid).limit(limit)
    found = connection.execution_options(yield_per=BATCH).execute(query)
    return [one for one in (or_none(each, _used) for each in found) if one is not None]


def _used(found: Any) -> UsedServer:
    task = Task(found.task) if found.task else None
    state, _ = shown(State(found.state), task, shelved=bool(found.shelved))
    return UsedServer(
        uuid=InstanceUuid(found.uuid),
        project_id=ProjectId(found.project_id),
        name=found.name,
        flavor=flavor_of(found.body),
        state=vm_state(state),
        launched_at=found.launched_at,
        terminated_at=found.terminated_at,
    )
