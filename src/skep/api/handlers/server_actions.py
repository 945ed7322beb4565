"""Actions on a server: what the rows of `api/actions.py` and `domain/actions.py` say, carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.actions import ROWS_BY_KEY
from skep.api.awaited_images import BEGIN_SECONDS
from skep.api.cells import read_cell, write_cell
from skep.api.handlers import charges, server_images, server_moves, servers
from skep.api.handlers.server_images import PreparedImage
from skep.api.handlers.server_lookup import PAUSE_SECONDS, TRIES, LocatedServer, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest, Handler
from skep.database import Connection
from skep.database.cell import agents, row_actions, tasks
from skep.database.cell.row_actions import locker
from skep.domain.actions import ACTIONS, Action, ActionRequest, Kind, Over
from skep.domain.clock import SECOND, Clock
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, OutcomeUnknown, SkepError, Unavailable
from skep.domain.instances import Instance
from skep.domain.states import task_state, vm_state
from skep.messages.to_cell_conductor import InstancesChanged
from skep.transport.base import cell_conductor

log = structlog.get_logger("skep.api.servers")

REASONS_SINCE = 73
"""Since then a lock may have a reason."""

UNLOCK_ANY = "os_compute_api:os-lock-server:unlock:unlock_override"

Choice = Callable[[Any], str]


async def act(request: ApiRequest) -> Answer:
    """Carry out the action that the body's key names."""
    row = ROWS_BY_KEY[next(iter(request.body))]
    asked = request.body[row.key]
    action = ACTIONS[_CHOICES[row.key](asked) if row.key in _CHOICES else row.actions[0]]
    if action.name in _OTHERS:
        return await _OTHERS[action.name](request)
    if action.kind is Kind.ROW:
        return await _carry_out(request, action, _ARGUMENTS[row.key](request, asked) if row.key in _ARGUMENTS else {})
    if action.kind is Kind.REHOST:
        return await _move(request, action, asked)
    return await begin(request, action, asked)


_CHOICES: dict[str, Choice] = {
    "reboot": lambda asked: "reboot_hard" if asked["type"].upper() == "HARD" else "reboot_soft",
}
"""Of keys with several actions: which one the body means."""

_ARGUMENTS: dict[str, Callable[[ApiRequest, Any], dict[str, Any]]] = {
    "os-resetState": lambda _request, asked: asked,
    "lock": lambda request, asked: (asked or {}) if request.version >= REASONS_SINCE else {},
}
"""Of keys whose actions are told something: what the body says of it."""


def _may_unlock(request: ApiRequest, found: LocatedServer) -> Callable[[Instance], None]:
    """Raise Forbidden for a lock of another sort than the caller would make, unless the caller may undo any lock."""
    owner = found.instance
    may_override = request.allowed(UNLOCK_ANY, project_id=owner.project_id, user_id=owner.user_id)

    def check(instance: Instance) -> None:
        others = instance.locked_by not in (None, locker(instance, request.context))
        if others and not may_override:
            raise Forbidden(f"Policy doesn't allow {UNLOCK_ANY} to be performed.")

    return check


_CHECKS: dict[str, Callable[[ApiRequest, LocatedServer], Callable[[Instance], None]]] = {
    "unlock": _may_unlock,
}
"""By the name of an action: what refuses it beyond its row of the table. Policy is asked before the row is written, in
which alone the rest is known."""

_PREPARES: dict[str, Callable[[ApiRequest, LocatedServer, Any], Awaitable[PreparedImage]]] = {
    "snapshot": server_images.create_image,
    "backup": server_images.create_backup,
}
"""By the name of an action: what has to be there before it is begun."""

_CHARGES: dict[str, Callable[[ApiRequest, Instance], Awaitable[None]]] = {
    "soft_delete": charges.bear,
    "restore": charges.restore,
    "reset_state": charges.restore_anyhow,
}
"""By the name of an action: what it does to the charge of the server, before its row is written."""

_OTHERS: dict[str, Handler] = {"delete": servers.delete}
"""Actions that are carried out where something else does the same."""


async def not_there_yet(request: ApiRequest) -> Answer:
    """Refuse an action of Nova that this release does not have."""
    await find(request)
    raise BadRequest(f"The action {next(iter(request.body))} is not available in this cloud")


async def begin(request: ApiRequest, action: Action, asked: Any = None) -> Answer:
    """Write an action of a host into the server's row and tell its cell."""
    services = request.services
    found = await find(request)
    instance = found.instance
    _check(request, instance, action)
    assert found.cell is not None
    if action.name in _CHARGES:
        await _CHARGES[action.name](request, instance)
    if action.name not in _PREPARES:
        unit = partial(_write, instance=instance, action=action, context=request.context, now=services.clock.now())
        over = await write_cell(services, found.cell, unit)
        answer = Answer()
    else:
        await read_cell(services, found.cell, partial(_refuse_unable, instance=instance, action=action))
        prepared = await _PREPARES[action.name](request, found, asked)
        over = await _begin_prepared(request, found, action, prepared)
        answer = prepared.answer
    if over is None:
        await _refuse(request, action)
    else:
        services.ended(over)
    await _tell(request, found)
    return answer


async def _begin_prepared(
    request: ApiRequest, found: LocatedServer, action: Action, prepared: PreparedImage
) -> list[Over] | None:
    """Write the action that an image was made for. What is not begun leaves none."""
    services, cell = request.services, found.cell
    assert cell is not None

    unit = partial(
        _write_in_time,
        instance=found.instance,
        action=action,
        context=request.context,
        clock=services.clock,
        prepared=prepared,
    )
    try:
        over = await write_cell(services, cell, unit)
    except OutcomeUnknown:
        # It may have begun.
        raise
    except SkepError:
        await prepared.undo()
        raise
    if over is None:
        await prepared.undo()
    return over


async def _move(request: ApiRequest, action: Action, asked: Any) -> Answer:
    """Begin a move of a server, or the way back, and tell its cell."""
    services = request.services
    found = await find(request)
    instance = found.instance
    host = await server_moves.wanted_host(request, instance, asked) if action.name == "migrate" else None
    _check(request, instance, action)
    await server_moves.check_source(request, instance)
    assert found.cell is not None
    now = services.clock.now()
    unit = partial(server_moves.begin, server=instance, action=action, context=request.context, now=now, host=host)
    over = await write_cell(services, found.cell, unit)
    if over is None:
        await _refuse(request, action)
    else:
        services.ended(over)
    await _tell(request, found)
    return Answer()


def _write(
    connection: Connection,
    instance: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    arguments: msgspec.Struct | None = None,
) -> list[Over] | None:
    """Write the action into the server's row and return what it ended; None when the row does not allow it.

    Raises Conflict as `_refuse_unable` does.
    """
    _refuse_unable(connection, instance, action)
    return tasks.begin_over(connection, instance.uuid, action, context, now, arguments)


def _write_in_time(
    connection: Connection,
    instance: Instance,
    action: Action,
    context: RequestContext,
    clock: Clock,
    prepared: PreparedImage,
) -> list[Over] | None:
    """Write an action that an image was made for, unless it is so late that others may discard the image.

    Raises Unavailable then, and as `_write`.
    """
    now = clock.now()
    if now - prepared.noted_at > BEGIN_SECONDS * SECOND:
        raise Unavailable("The image service took too long to make the image. Nothing was begun; try again.")
    return _write(connection, instance, action, context, now, prepared.arguments)


def _refuse_unable(connection: Connection, instance: Instance, action: Action) -> None:
    """Raise Conflict when the driver of a server's host said that it cannot do an action.

    Of a host that says nothing, and of one that changes its driver at this moment, the agent decides.
    """
    assert instance.host is not None
    if action.capability is not None and agents.lacks(connection, instance.host, action.capability):
        raise Conflict(
            f"Cannot '{action.record}' instance {instance.uuid}: the requested functionality is not supported. The "
            f"driver of its host lacks the capability `{action.capability}`."
        )


async def _carry_out(request: ApiRequest, action: Action, arguments: dict[str, Any]) -> Answer:
    """Carry out an action that is one write of the server's row. A server that is just being mapped is waited for."""
    services = request.services
    asked = ActionRequest(action=action.name, context=request.context, arguments=arguments)
    for _ in range(TRIES):
        found = await find(request)
        if found.cell is not None:
            if action.name in _CHARGES:
                await _CHARGES[action.name](request, found.instance)
            unit = partial(
                row_actions.carry_out,
                uuid=found.instance.uuid,
                action=action,
                request=asked,
                check=_checked(request, action, found),
                host=services.runs_on,
                now=services.clock.now(),
            )
            over = await write_cell(services, found.cell, unit)
            if over is not None:
                services.ended(over)
                return Answer()
        await asyncio.sleep(PAUSE_SECONDS)
    raise Conflict(f"Instance {request.params['id']} is not ready")


def _checked(request: ApiRequest, action: Action, found: LocatedServer) -> Callable[[Instance], None]:
    own = _CHECKS[action.name](request, found) if action.name in _CHECKS else None

    def check(instance: Instance) -> None:
        _check(request, instance, action)
        if own is not None:
            own(instance)

    return check


def _check(request: ApiRequest, instance: Instance, action: Action) -> None:
    """Raise Conflict when the server is locked or in no state that allows it, or something else is being done to it.

    Texts and order are Nova's, also for a server that was never built or has no host.
    """
    if action.lock_refuses:
        refuse_if_locked(request, instance)
    if action.name in _HOST_FIRST and instance.host is None:
        raise _not_ready(instance)
    if action.begins_in is not None and instance.state not in action.begins_in:
        raise _conflict(instance, action, f"vm_state {vm_state(instance.state)}")
    if action.task is not None and instance.task is not None and instance.task not in action.overrides:
        raise _conflict(instance, action, f"task_state {task_state(instance.state, instance.task)}")
    if action.kind is Kind.ROW:
        return
    if instance.launched_at is None:
        raise Conflict(f"Instance {instance.uuid} is in an invalid state for '{action.record}'")
    if instance.host is None:
        raise _not_ready(instance)


_HOST_FIRST = frozenset({"start", "stop"})
"""Actions for which Nova asks for the host before it looks at the state."""


def _not_ready(instance: Instance) -> Conflict:
    return Conflict(f"Instance {instance.uuid} is not ready")


async def _refuse(request: ApiRequest, action: Action) -> None:
    """Say why the row did not take the task: it changed after it was read."""
    instance = (await find(request)).instance
    _check(request, instance, action)
    raise _conflict(instance, action, "another action")


def _conflict(instance: Instance, action: Action, state: str) -> Conflict:
    return Conflict(f"Cannot '{action.record}' instance {instance.uuid} while it is in {state}")


async def _tell(request: ApiRequest, found: LocatedServer) -> None:
    assert found.cell is not None
    try:
        await request.services.transport.cast(cell_conductor(found.cell), InstancesChanged(), request.context)
    except (SkepError, OSError) as error:
        log.warning("cell conductor not notified", request=request.context.request_id, error=str(error))
