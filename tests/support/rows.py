"""Rows to try the databases' writes on: a server in any state of its life, brought there by the real writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import sqlalchemy as sa

from skep.database.api.build_requests import NewRequest
from skep.database.cell import (
    attempts,
    builds,
    cold_moves,
    deletes,
    hand_overs,
    instances,
    move_steps,
    moves,
    offloads,
    reschedules,
    tasks,
)
from skep.database.cell import tables as cell_tables
from skep.domain.actions import ACTIONS, Action, ShelveServer, of_task
from skep.domain.builds import Placed
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.ids import CellUuid, Incarnation, InstanceUuid, NodeUuid, ProjectId, RequestId, UserId
from skep.domain.instances import Fault, Instance, PowerState, State, Task
from skep.domain.moves import STEPS
from skep.domain.providers import Allocation
from skep.domain.request_specs import RequestSpec

PROJECT = ProjectId("p")
USER = UserId("u")
FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
ONE = InstanceUuid("00000000-0000-4000-8000-000000000001")
HOST = "host1"
CELL = CellUuid("c")
ME = Incarnation("me")
FAULT = Fault(code=500, message="it broke", created_at=5)


def server(uuid: InstanceUuid = ONE, *, attempt: int = 1, host: str | None = HOST, request: str = "req-1") -> Instance:
    """Return a server on a host; its node is named after the host."""
    return Instance(
        uuid=uuid,
        project_id=PROJECT,
        user_id=USER,
        name="server",
        hostname="server",
        flavor=FLAVOR,
        created_at=1,
        request_id=RequestId(request),
        attempt=attempt,
        host=host,
        node=None if host is None else NodeUuid(f"node-{host}"),
    )


def context(request: str = "req-1") -> RequestContext:
    """Return who asks."""
    return RequestContext(request_id=RequestId(request), project_id=PROJECT, user_id=USER, roles=("member",))


def spec() -> RequestSpec:
    """Return what is asked for."""
    return RequestSpec(project_id=PROJECT, user_id=USER, flavor=FLAVOR)


def staged(uuid: InstanceUuid = ONE, *, attempt: int = 1, host: str | None = HOST) -> builds.Staged:
    """Return a server as the super conductor writes it into a cell."""
    return builds.Staged(
        instance=server(uuid, attempt=attempt, host=None),
        assignment=None if host is None else placed(host).assignment(spec()),
        spec=spec(),
        context=context(),
        epoch="e",
        secrets=b"sealed",
    )


def placed(host: str, allocation: Allocation | None = None) -> Placed:
    """Return a decision for a host."""
    return Placed(node=NodeUuid(f"node-{host}"), host=host, cell=CELL, epoch="e", allocation=allocation)


def request(uuids: Sequence[InstanceUuid], *, name: str = "req-1", now: int = 1, minimum: int = 1) -> NewRequest:
    """Return a create request as the API stores it."""
    return NewRequest(
        context=context(name),
        instances=tuple(server(uuid, attempt=0, host=None, request=name) for uuid in uuids),
        spec=spec(),
        min_count=minimum,
        now=now,
    )


LEFT_IN = {
    State.STOPPED: PowerState.SHUTDOWN,
    State.PAUSED: PowerState.PAUSED,
    State.SUSPENDED: PowerState.SUSPENDED,
    State.SOFT_DELETED: PowerState.SHUTDOWN,
}
"""How an action left the guest of a server in this state."""
LIVED = (
    State.ACTIVE,
    *LEFT_IN,
    State.RESCUED,
    State.RESIZED,
    State.AWAY,
    State.SHELVED,
    State.SHELVED_OFFLOADED,
    State.DELETED,
)
"""States after a build that went well."""


def bring_to(connection: sa.Connection, state: State, *, now: int = 10) -> None:
    """Make server `ONE`, attempt 1 on `HOST`, and bring it into `state` as a build or a user would."""
    builds.stage(connection, [staged()], now)
    if state is State.STAGED:
        return
    builds.settle(connection, [(ONE, 1)], now)
    if state in (State.RESCHEDULING, State.HANDED_BACK, State.LEAVING, State.MOVED):
        assert builds.fail(connection, ONE, 1, HOST, None, now)
    if state in (State.HANDED_BACK, State.LEAVING, State.MOVED):
        assert moves.hand_back(connection, ONE, 1, FAULT, now)
    if state in (State.LEAVING, State.MOVED):
        assert moves.freeze(connection, ONE, 1, 2, now)
    if state is State.MOVED:
        assert moves.left(connection, ONE, now)
    if state is State.ERROR:
        assert builds.fail(connection, ONE, 1, HOST, FAULT, now)
    if state in (State.BUILDING, State.SPAWNING, *LIVED):
        assert builds.may_build(connection, ONE, 1, HOST, now)
    if state in (State.SPAWNING, *LIVED):
        assert builds.may_spawn(connection, ONE, 1, HOST, now)
    if state in LIVED:
        assert builds.built(connection, ONE, 1, HOST, now, PowerState.RUNNING, now)
    if state in LEFT_IN:
        stops = ACTIONS["soft_delete" if state is State.SOFT_DELETED else "stop"]
        assert tasks.begin(connection, ONE, stops, context("req-stop"), now)
        assert tasks.done(connection, ONE, 1, "req-stop", LEFT_IN[state], None, now)
    if state in _FURTHER:
        _FURTHER[state](connection, now)


def shelve(connection: sa.Connection, now: int) -> None:
    """Shelve server `ONE`, which runs, into the image `image`."""
    arguments = ShelveServer(image_id="image", disk_format="raw", was=State.ACTIVE, project_id=PROJECT)
    assert tasks.begin(connection, ONE, ACTIONS["shelve"], context("req-shelve"), now, arguments=arguments)
    assert tasks.done(connection, ONE, 1, "req-shelve", PowerState.SHUTDOWN, None, now)


def _offload(connection: sa.Connection, now: int) -> None:
    shelve(connection, now)
    assert offloads.begin(connection, ONE, context("req-offload"), now)
    assert attempts.close_one(connection, ONE, HOST, 1, now)
    assert offloads.finish(connection, 0, now, 10)


def _delete(connection: sa.Connection, now: int) -> None:
    assert deletes.begin(connection, ONE, context("req-delete"), now) is not None
    assert attempts.close(connection, ONE, HOST, 2, now)
    assert deletes.finish_if_closed(connection, ONE, now)


def _away(connection: sa.Connection, now: int) -> None:
    begun = cold_moves.begin(connection, _server(connection), ACTIONS["migrate"], context("req-move"), now)
    assert begun is not None
    step = STEPS["hand_over"]
    connection.execute(cell_tables.migrations.update().values(step=step.name, dest_cell="cell2"))
    connection.execute(cell_tables.instances.update().values(task=step.task.value))
    assert hand_overs.freeze(
        connection, connection.execute(sa.select(cell_tables.migrations.c.uuid)).scalar_one(), 0, now
    )


def move(connection: sa.Connection, host: str, *, now: int = 10) -> None:
    """Move server `ONE` to another host."""
    assert cold_moves.begin(connection, _server(connection), ACTIONS["migrate"], context("req-move"), now) is not None
    [waiting] = cold_moves.take(connection, ME, now, 1)
    assert cold_moves.placed(connection, waiting, placed(host), now)
    known = waiting.move
    for step, attempt, where in (
        ("prepare", waiting.attempt, host),
        ("put_aside", known.source_attempt, known.source_host),
        ("transfer", waiting.attempt, host),
        ("take_up", waiting.attempt, host),
    ):
        told, running = known.context.request_id, PowerState.RUNNING
        assert move_steps.done(connection, known.uuid, step, attempt, where, running, now, 3, task_id=told) is not None


def _rescue(connection: sa.Connection, now: int) -> None:
    assert tasks.begin(connection, ONE, ACTIONS["rescue"], context("req-rescue"), now, secrets=b"sealed")
    assert tasks.done(connection, ONE, 1, "req-rescue", PowerState.RUNNING, None, now)


_FURTHER: dict[State, Callable[[sa.Connection, int], None]] = {
    State.RESCUED: _rescue,
    State.RESIZED: lambda connection, now: move(connection, "host2", now=now),
    State.SHELVED: shelve,
    State.SHELVED_OFFLOADED: _offload,
    State.DELETED: _delete,
    State.AWAY: _away,
}
"""What brings a server that runs into a state."""


def _server(connection: sa.Connection) -> Instance:
    found = instances.get(connection, ONE)
    assert found is not None
    return found


def asking(task: Task, allowed: frozenset[State]) -> Action:
    """Return the action that has this task, begun in other states than its own."""
    return msgspec.structs.replace(of_task(task), begins_in=allowed)


def give_up(connection: sa.Connection, *, now: int = 10) -> None:
    """Bring server `ONE` into ERROR because its host fell silent after the point of no return."""
    bring_to(connection, State.SPAWNING, now=now)
    assert reschedules.give_up_on_host(connection, ONE, 1, FAULT, now)


def everything(connection: sa.Connection) -> dict[str, list[str]]:
    """Return every row of a cell's tables as a text, by table, to see whether something changed."""
    found: dict[str, list[str]] = defaultdict(list)
    for table, row in connection.exec_driver_sql(_every_row(connection.dialect.name)):
        found[table].append(row)
    return dict(found)


@cache
def _every_row(dialect: str) -> str:
    """Return one statement that reads all rows of all tables: one for each table would take twenty times as long."""
    binary = "hex({})" if dialect == "sqlite" else "encode({}, 'hex')"
    selects = []
    for table in cell_tables.metadata.sorted_tables:
        names = [(f'"{column.name}"', isinstance(column.type, sa.LargeBinary)) for column in table.columns]
        texts = [binary.format(name) if is_binary else f"CAST({name} AS TEXT)" for name, is_binary in names]
        content = " || ".join(f"coalesce({text} || ';', '-;')" for text in texts)
        selects.append(f"SELECT '{table.name}' AS place, {content} AS content FROM {table.name}")
    return " UNION ALL ".join(selects) + " ORDER BY place, content"


def any_open(connection: sa.Connection, uuid: InstanceUuid = ONE) -> bool:
    """Tell whether some host may still have something of a server."""
    return any(attempt.open for attempt in attempts.history(connection, uuid))


def state_of(connection: sa.Connection, uuid: InstanceUuid = ONE) -> State | None:
    """Return the state of a server's row, None where there is no row."""
    found = connection.execute(
        sa.select(cell_tables.instances.c.state).where(cell_tables.instances.c.uuid == uuid)
    ).scalar_one_or_none()
    return None if found is None else State(found)
