"""Actions that one write of a server's row carries out. What each writes is a function in `CHANGES`, by its name.

The row, the actions that it ends and the record of the action are written in one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from skep.database.cell import (
    actions,
    builds,
    cold_moves,
    instances,
    interfaces,
    live_moves,
    numbers,
    resting,
    tasks,
    unshelves,
    volumes,
)
from skep.database.cell.endings import with_instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances as instance_rows
from skep.database.cell.transitions import moving
from skep.database.constants import constants
from skep.domain.actions import REPEATED, Action, ActionRequest, Ended, Over
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Fault, Instance, State, Task
from skep.domain.moves import MOVING
from skep.domain.states import BUILD_STATES, FROZEN
from skep.domain.vifs import Vif
from skep.domain.volumes import ServerVolume, free_name, root_of, staying, taken_names

row = instance_rows.c

Values = dict[str, Any]
Change = Callable[[sa.Connection, Instance, ActionRequest, int], Values | None]
"""From a server as it is, what was asked of it and the time to the columns to write; None: nothing is to be done.
Raises Conflict to refuse."""


_MINE = sa.and_(
    row.uuid == sa.bindparam("of"),
    row.deleted_at.is_(None),
    row.state.not_in(constants(FROZEN)),
    ~row.refused_id.is_not_distinct_from(sa.bindparam("asked")),
)
_READ = sa.select(*instances.live_columns).where(_MINE)
_CHANGE = instance_rows.update().where(_MINE)


def carry_out(
    connection: sa.Connection,
    uuid: InstanceUuid,
    action: Action,
    request: ActionRequest,
    check: Callable[[Instance], None],
    host: str,
    now: int,
) -> list[Over] | None:
    """Carry an action out on a server that `check` lets pass; return it and the actions that it ended.

    `host` is the machine of the API; an action about a move names the host of the move instead, and one that changes
    what a server has on its host (Nova does it there) that host. None when there is no
    such row, or it is frozen for a moment. What `check` raises passes through; nothing is written then. An action that
    has nothing to do leaves no record, as in Nova.
    """
    mine = {"of": uuid, "asked": request.context.request_id}
    found = connection.execute(_READ, mine).first()
    if found is None:
        return None
    before = instances.instance_of(found)
    check(before)
    values = CHANGES[action.name](connection, before, request, now)
    if values is None:
        return []
    overtaken = []
    if action.overrides and before.task in action.overrides:
        overridden = sa.and_(row.uuid == uuid, row.task.in_(constants(action.overrides)))
        overtaken = tasks.of(connection, overridden)
    settled = [tasks.settle(connection, task, now, tasks.OVERTAKEN) for task in overtaken]
    changing = _CHANGE if "state" not in values else _CHANGE.where(moving(before.state, State(values["state"])))
    if any(isinstance(value, sa.ColumnElement) for value in values.values()):
        changing, values = changing.values(values), {}
    connection.execute(changing, {**mine, "changed_at": now, "updated_at": now, **values})
    actions.begin(connection, [actions.action_of(uuid, action.record, request.context, now)])
    over = Ended(
        action=action.name,
        context=request.context,
        instance=uuid,
        attempt=before.attempt,
        host=_where(connection, before, action, host),
        started_at=now,
        ended_at=now,
        before=before.state,
        before_task=before.task,
        arguments={key: request.arguments[key] for key in _TOLD if key in request.arguments},
    )
    actions.ended(connection, over)
    return with_instances(connection, [*(one for one in settled if one is not None), over])


def _where(connection: sa.Connection, before: Instance, action: Action, api: str) -> str | None:
    """Return the host that the event of an action names; `api` is the machine of the API."""
    if action.event_of is not None:
        return cold_moves.source_of(connection, before.uuid)
    return before.host if action.begins and before.host is not None else api


_TOLD = ("volume_id",)
"""Arguments that notifications tell of."""


def locker(server: Instance, context: RequestContext) -> Literal["owner", "admin"]:
    """Return as whom a caller locks a server."""
    return "owner" if context.project_id == server.project_id else "admin"


def _lock(_connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values | None:
    """Lock a server. Its owner changes nothing of a lock that is there; without a new reason the old one stays."""
    by = locker(before, request.context)
    if before.locked and by == "owner":
        return None
    reason = request.arguments.get("locked_reason")
    return {"locked": True, "locked_by": by, "locked_reason": before.locked_reason if reason is None else reason}


def _unlock(_connection: sa.Connection, _before: Instance, _request: ActionRequest, _now: int) -> Values:
    """Unlock a server, also one that is not locked."""
    return {"locked": False, "locked_by": None, "locked_reason": None}


_WRITTEN = ("changed_at", "updated_at")
"""Columns that every action writes."""


def _reset_state(connection: sa.Connection, before: Instance, request: ActionRequest, now: int) -> Values:
    """Write the state that an admin says; what a host was doing to the guest is ended by the caller.

    A build is given up: its host undoes the attempt that the row leaves behind. Not while a recovery holds the server
    up: its host may have the whole guest.
    """
    after = State(request.arguments["state"])
    if before.task in MOVING | REPEATED or _is_being_rehosted(before):
        raise Conflict(f"Cannot 'resetState' instance {before.uuid} while it is in task_state {before.task}")
    if after is State.ACTIVE and before.shelved is not None and unshelves.nowhere(connection, before.uuid):
        # Its content is in its image, and nowhere else.
        again = unshelves.as_it_was(before.shelved, before.launched_at, now)
        return {name: value for name, value in again.items() if name not in _WRITTEN}
    if after is State.ACTIVE and not _is_on_host(connection, before):
        raise Conflict(f"Cannot 'resetState' instance {before.uuid} to active: it was not built, or its host is lost")
    if before.state not in BUILD_STATES:
        # What runs again is not in its image any more.
        return {"state": after.value} if after is not State.ACTIVE else {"state": after.value, "shelved": None}
    if resting.holds_up(connection, before.uuid):
        raise Conflict(
            f"Cannot 'resetState' instance {before.uuid}: its cell's database went back in time, and what its host has "
            "of the server is not decided yet. `skep recovery list` tells what is open."
        )
    fault = Fault(code=500, message="The state was reset to error before the server was built", created_at=now)
    values = {name: value for name, value in builds.ended(fault, now).items() if name not in _WRITTEN}
    return {**values, **numbers.raised()}


def _is_being_rehosted(server: Instance) -> bool:
    """Tell whether a server leaves its host, or is built from its image."""
    offloaded = server.state is State.SHELVED_OFFLOADED and server.task is Task.UNSHELVING
    return offloaded or server.task in (Task.SHELVING_OFFLOADING, Task.SPAWNING)


def _is_on_host(connection: sa.Connection, server: Instance) -> bool:
    """Tell whether the attempt of a server that was built is open on its host."""
    attempt = attempt_rows.c
    mine = (attempt.instance == server.uuid, attempt.attempt == server.attempt, attempt.host == server.host)
    found = connection.execute(sa.select(attempt.attempt).where(*mine, attempt.open)).first()
    return server.launched_at is not None and found is not None


def _confirm_resize(connection: sa.Connection, before: Instance, _request: ActionRequest, now: int) -> Values:
    """Let what a move has kept go."""
    if before.task is not None:
        raise Conflict(f"Cannot 'confirmResize' instance {before.uuid} while it is in task_state {before.task}")
    return {"state": cold_moves.confirm(connection, before, now).value}


def _attach_interface(connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Write one more interface."""
    vif: Vif = request.arguments["vif"]
    going = [one for one in interfaces.going(connection, before.uuid) if one.id != vif.id]
    return interfaces.columns([*_interfaces_without(before, request, vif.id), vif, *going])


def _detach_interface(connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Write the interfaces without one. Raises NotFound where the server has it no more."""
    port_id: str = request.arguments["port_id"]
    left = _interfaces_without(before, request, port_id)
    if len(left) == len(before.vifs):
        raise NotFound(f"Port id {port_id[:80]} could not be found.")
    return interfaces.columns([*left, *interfaces.going(connection, before.uuid)])


def _interfaces_without(before: Instance, request: ActionRequest, port_id: str) -> list[Vif]:
    """Return the interfaces but one. Raises Conflict while anything is done to the server."""
    _refuse_beside_task(before, request)
    return [one for one in before.vifs if one.id != port_id]


MOST_DISKS = 26
"""Disks that a server may have: a driver names each by a letter."""


def _attach_volume(_connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Write one more volume, under the name that was asked for or the first free one. Raises as `named_volume`."""
    _refuse_beside_task(before, request)
    return volumes.columns([*before.volumes, named_volume(before, request.arguments["volume"])])


def named_volume(before: Instance, volume: ServerVolume) -> ServerVolume:
    """Return one more volume of a server, under the name that was asked for or the first free one.

    Raises BadRequest for a volume that the server has, Conflict for a name that another disk has, Forbidden for one
    disk too many.
    """
    if any(one.volume_id == volume.volume_id for one in before.volumes):
        raise BadRequest(f"Volume {volume.volume_id} is already attached to instance {before.uuid}.")
    taken = taken_names(before.block_devices, before.volumes)
    if volume.device in taken:
        raise Conflict(f"Invalid input for field/attribute device. Value: {volume.device}. Another disk has this name.")
    if len(taken) >= MOST_DISKS:
        raise Forbidden(f"Instance {before.uuid} has {len(taken)} disks, and at most {MOST_DISKS} are possible.")
    return msgspec.structs.replace(volume, device=volume.device or free_name(taken, root_of(before.block_devices)))


def _detach_volume(_connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Write that one of the volumes leaves. Raises NotFound where the server has it no more.

    From then on nothing keeps it: the volume service lets go of it, and then the row loses it.
    """
    _refuse_beside_task(before, request)
    volume_id: str = request.arguments["volume_id"]
    found = next((one for one in staying(before.volumes) if one.volume_id == volume_id), None)
    if found is None:
        raise NotFound(f"Volume {volume_id} is not attached to instance {before.uuid}.")
    if found.is_promised:
        raise Conflict(f"Volume {volume_id} of instance {before.uuid} is in the hands of the volume service.")
    leaves = msgspec.structs.replace(found, leaving=True)
    return volumes.columns([leaves if one is found else one for one in before.volumes])


def _refuse_beside_task(before: Instance, request: ActionRequest) -> None:
    if before.task is not None:
        raise Conflict(f"Cannot '{request.action}' instance {before.uuid} while it is in task_state {before.task}")


def _nothing(_connection: sa.Connection, _before: Instance, _request: ActionRequest, _now: int) -> None:
    """Write nothing: no driver can tell a running guest of its networks."""


def _image_of_volumes(_connection: sa.Connection, _before: Instance, _request: ActionRequest, _now: int) -> Values:
    """Write nothing but that it was done: the image is of the server's volumes, and no host had to do with it."""
    return {}


def _live_abort(connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Wish that a live migration comes to nothing."""
    asked = request.arguments
    live_moves.abort(connection, before.uuid, asked["migration"], tuple(asked["statuses"]))
    return {}


def _live_complete(connection: sa.Connection, before: Instance, request: ActionRequest, _now: int) -> Values:
    """Wish that a live migration ends by pausing the guest."""
    live_moves.complete(connection, before.uuid, request.arguments["migration"])
    return {}


CHANGES: Mapping[str, Change] = {
    "attach_interface": _attach_interface,
    "attach_volume": _attach_volume,
    "confirm_resize": _confirm_resize,
    "detach_interface": _detach_interface,
    "detach_volume": _detach_volume,
    "live_abort": _live_abort,
    "live_complete": _live_complete,
    "reset_state": _reset_state,
    "inject_network_info": _nothing,
    "lock": _lock,
    "snapshot_volume_backed": _image_of_volumes,
    "unlock": _unlock,
}
"""Name of an action -> what it writes."""
