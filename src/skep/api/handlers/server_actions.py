"""Actions on a server: what the rows of `api/actions.py` and `domain/actions.py` say, carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.actions import ROWS_BY_KEY
from skep.api.awaited_images import BEGIN_SECONDS
from skep.api.cells import read_cell, write_cell
from skep.api.handlers import (
    charges,
    guest_questions,
    guest_secrets,
    live_migrations,
    proxied_addresses,
    server_addresses,
    server_evacuations,
    server_images,
    server_moves,
    server_rebuilds,
    server_shelving,
    servers,
    volume_backed_images,
)
from skep.api.handlers.guest_secrets import SealedArguments
from skep.api.handlers.server_images import PreparedImage
from skep.api.handlers.server_lookup import PAUSE_SECONDS, TRIES, LocatedServer, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest, Handler
from skep.database import Connection
from skep.database.cell import agents, offloads, row_actions, tasks, unshelves
from skep.database.cell.row_actions import locker
from skep.domain.actions import ACTIONS, Action, ActionRequest, Kind, Over, ShelveServer
from skep.domain.clock import SECOND, Clock
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, Forbidden, OutcomeUnknown, SkepError, Unavailable, Withdrawn
from skep.domain.ids import CellUuid
from skep.domain.instances import Instance, State, Task
from skep.domain.leaving import CROSS_CELL
from skep.domain.moves import Size
from skep.domain.states import task_state, vm_state
from skep.messages.to_cell_conductor import InstancesChanged, Work
from skep.transport.base import cell_conductor

log = structlog.get_logger("skep.api.servers")

REASONS_SINCE = 73
"""Since then a lock may have a reason."""

UNLOCK_ANY = "os_compute_api:os-lock-server:unlock:unlock_override"

Choice = Callable[[Any], str]


async def act(request: ApiRequest) -> Answer:
    """Carry out the action that the body's key names."""
    row = ROWS_BY_KEY[next(iter(request.body))]
    if not row.actions:
        return await _WITHOUT_ROW[row.key](request)
    asked = request.body[row.key]
    action = ACTIONS[_CHOICES[row.key](asked) if row.key in _CHOICES else row.actions[0]]
    if action.name in _OTHERS:
        return await _OTHERS[action.name](request)
    if action.kind is Kind.ROW:
        return await _carry_out(request, action, _ARGUMENTS[row.key](request, asked) if row.key in _ARGUMENTS else {})
    if action.name == "evacuate":
        return await _evacuate(request, action, asked)
    if action.kind is Kind.REHOST:
        return await _move(request, action, asked)
    if action.kind is Kind.REBUILD:
        return await _rebuild(request, action, asked)
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


def check_migrating(request: ApiRequest, instance: Instance, action: Action) -> None:
    """Raise Conflict when a server is not under a live migration, or in no state that allows this to be done to it."""
    _check(request, instance, action)
    if instance.task is not Task.MIGRATING:
        raise _conflict(instance, action, f"task_state {task_state(instance.state, instance.task)}")


def check_without_task(request: ApiRequest, instance: Instance, action: Action) -> None:
    """Raise Conflict when a server is in no state that allows an action of one write, or anything is done to it."""
    _check(request, instance, action)
    if instance.task is not None:
        raise _conflict(instance, action, f"task_state {task_state(instance.state, instance.task)}")


def _migrates(request: ApiRequest, found: LocatedServer, name: str) -> Callable[[Instance], None]:  # noqa: ARG001
    return partial(check_migrating, request, action=ACTIONS[name])


_CHECKS: dict[str, Callable[[ApiRequest, LocatedServer], Callable[[Instance], None]]] = {
    "unlock": _may_unlock,
    "live_abort": partial(_migrates, name="live_abort"),
    "live_complete": partial(_migrates, name="live_complete"),
}
"""By the name of an action: what refuses it beyond its row of the table. Policy is asked before the row is written, in
which alone the rest is known."""

_PREPARES: dict[str, Callable[[ApiRequest, LocatedServer, Any], Awaitable[PreparedImage]]] = {
    "snapshot": server_images.create_image,
    "backup": server_images.create_backup,
    "shelve": server_images.shelve,
    "unshelve": server_images.unshelve,
}
"""By the name of an action: what has to be there before it is begun."""


_OF_VOLUME_BACKED = {"shelve": ACTIONS["shelve_volume_backed"]}
"""By the name of an action: what stands for it where a server boots from a volume, of which no host makes an image."""

_SEALS: dict[str, Callable[[ApiRequest, Instance, Any], Awaitable[SealedArguments]]] = {
    "change_password": guest_secrets.change_password,
    "rescue": guest_secrets.rescue,
}
"""By the name of an action with secret arguments: what its host is told."""

_CHARGES: dict[str, Callable[[ApiRequest, Instance], Awaitable[None]]] = {
    "soft_delete": charges.bear,
    "restore": charges.restore,
    "reset_state": charges.restore_anyhow,
}
"""By the name of an action: what it does to the charge of the server, before its row is written."""


async def given_up(request: ApiRequest) -> Answer:
    """Refuse an action of Nova that nobody has any more, whatever it is asked of."""
    raise Withdrawn(f"The action {next(iter(request.body))} is not available any more")


async def begin(request: ApiRequest, action: Action, asked: Any = None) -> Answer:
    """Write an action of a host into the server's row and tell its cell."""
    services = request.services
    found = await find(request)
    instance = found.instance
    if instance.is_volume_backed:
        action = _OF_VOLUME_BACKED.get(action.name, action)
    _check(request, instance, action)
    assert found.cell is not None
    if action.name == "snapshot" and instance.is_volume_backed:
        return await _image_of_volumes(request, found, asked)
    if action.name in _CHARGES:
        await _CHARGES[action.name](request, instance)
    if action.name not in _PREPARES or (action.name == "unshelve" and instance.is_volume_backed):
        sealed = await _SEALS[action.name](request, instance, asked) if action.has_secrets else None
        unit = partial(
            _write,
            instance=instance,
            action=action,
            context=request.context,
            now=services.clock.now(),
            arguments=sealed.arguments if sealed is not None else _plain_arguments(action, instance),
            secrets=sealed.secrets if sealed is not None else None,
        )
        over = await write_cell(services, found.cell, unit)
        answer = sealed.answer if sealed is not None else Answer()
    else:
        await read_cell(services, found.cell, partial(_refuse_unable, instance=instance, action=action))
        prepared = await _PREPARES[action.name](request, found, asked)
        over = await _begin_prepared(request, found, action, prepared)
        answer = prepared.answer
    if over is None:
        await _refuse(request, action)
    else:
        services.ended(over)
    await _tell(request, found, action, ended=over)
    return answer


async def begin_with(
    request: ApiRequest,
    found: LocatedServer,
    action: Action,
    arguments: msgspec.Struct,
    also: Callable[[Connection], bool],
) -> None:
    """Write an action of a host, and `also` what belongs to it, in one unit; and tell the cell.

    Raises Conflict for a server whose row does not allow the one or the other: neither is written then.
    """
    instance = found.instance
    assert found.cell is not None

    def unit(connection: Connection) -> list[Over] | None:
        over = _write(connection, instance, action, request.context, request.services.clock.now(), arguments)
        if over is not None and not also(connection):
            raise _not_ready(instance)
        return over

    over = await write_cell(request.services, found.cell, unit)
    if over is None:
        # The policy of the route may not let the caller look again: services ask by rules of their own.
        raise _conflict(instance, action, "another action")
    request.services.ended(over)
    await _tell(request, found, action, ended=over)


async def check_able(request: ApiRequest, found: LocatedServer, action: Action) -> None:
    """Raise Conflict where the driver of a server's host said that it cannot do an action."""
    assert found.cell is not None
    await read_cell(request.services, found.cell, partial(_refuse_unable, instance=found.instance, action=action))


async def _image_of_volumes(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> Answer:
    """Make the image of a server that boots from a volume, and note it among the server's actions."""
    image_id, answer = await volume_backed_images.create(request, found, asked)
    try:
        await carry_out(request, found, ACTIONS["snapshot_volume_backed"], {"snapshot_image_id": image_id})
    except SkepError as error:
        # The image is there, whatever has begun on the server meanwhile.
        log.warning("action not noted", request=request.context.request_id, image=image_id, error=str(error))
    return answer


def _plain_arguments(action: Action, server: Instance) -> msgspec.Struct | None:
    """Return what a host is told of an action that needs no preparation."""
    if action.arguments is not ShelveServer:
        return None
    return ShelveServer(image_id="", disk_format="", was=server.state, project_id=server.project_id)


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
    live = action.name == "live_migrate"
    _check(request, instance, action)
    elsewhere = request.allowed(CROSS_CELL, project_id=instance.project_id, user_id=instance.user_id)
    host = None
    if action.name == "migrate":
        host = await server_moves.wanted_host(request, found, asked, elsewhere=elsewhere)
    elif live:
        host = await live_migrations.wanted_host(request, found, asked)
    await (live_migrations.check_source if live else server_moves.check_source)(request, instance)
    assert found.cell is not None
    unit = partial(
        server_moves.begin,
        server=instance,
        action=action,
        context=request.context,
        host=host,
        forced=live and live_migrations.is_forced(request, asked),
        elsewhere=elsewhere,
    )
    if action.name == "resize":
        over = await _begin_resize(request, found, unit, await server_moves.new_size(request, instance, asked))
    else:
        over = await write_cell(services, found.cell, partial(unit, now=services.clock.now()))
    if over is None:
        await _refuse(request, action)
    else:
        services.ended(over)
    await _tell(request, found, action, ended=over)
    if live and request.version < live_migrations.ASYNCHRONOUS_SINCE:
        await live_migrations.wait_for_checks(request, found)
    return Answer()


async def _begin_resize(
    request: ApiRequest, found: LocatedServer, begin: Callable[..., list[Over] | None], size: Size
) -> list[Over] | None:
    """Charge the server for both its sizes and begin its move; of what is not begun nothing stays charged."""
    services, cell = request.services, found.cell
    assert cell is not None
    await charges.resize(request, found.instance, size.flavor)
    try:
        over = await write_cell(services, cell, partial(begin, now=services.clock.now(), size=size))
    except OutcomeUnknown:
        # It may have begun: whoever settles charges finds out.
        raise
    except SkepError:
        await charges.refused(request, found.instance)
        raise
    if over is None:
        await charges.refused(request, found.instance)
    return over


async def _evacuate(request: ApiRequest, action: Action, asked: dict[str, Any]) -> Answer:
    """Begin to evacuate a server, and tell its cell."""
    services = request.services
    found = await find(request)
    instance = found.instance
    wanted = await server_evacuations.wanted(request, instance, asked)
    _check(request, instance, action)
    await server_evacuations.check_source(request, instance)
    assert found.cell is not None
    unit = partial(
        server_evacuations.begin,
        server=instance,
        action=action,
        context=request.context,
        wanted=wanted,
        needs_fence=services.settings.evacuate_needs_fence,
        now=services.clock.now(),
    )
    over = await write_cell(services, found.cell, unit)
    if over is None:
        await _refuse(request, action)
    else:
        services.ended(over)
        services.asked("evacuate", instance, request.context)
    await _tell(request, found, action, ended=over)
    return Answer({"adminPass": wanted.password}) if request.version < server_evacuations.SILENT_SINCE else Answer()


async def _rebuild(request: ApiRequest, action: Action, asked: Any) -> Answer:
    """Begin a rebuild of a server, and tell its cell."""
    found = await find(request)
    _check(request, found.instance, action)
    prepared = await server_rebuilds.prepare(request, found, asked)
    over = await server_rebuilds.begin(request, found, prepared)
    if over is None:
        await _refuse(request, action)
    else:
        request.services.ended(over)
    await _tell(request, found, action, ended=over)
    return await prepared.answer(request, found.groups)


def _write(
    connection: Connection,
    instance: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    arguments: msgspec.Struct | None = None,
    secrets: bytes | None = None,
) -> list[Over] | None:
    """Write the action into the server's row and return what it ended; None when the row does not allow it.

    Raises Conflict as `_refuse_unable` does.
    """
    _refuse_unable(connection, instance, action)
    if isinstance(arguments, ShelveServer):
        # What it was is among what its host is told.
        action = msgspec.structs.replace(action, begins_in=frozenset({arguments.was}))
    return tasks.begin_over(connection, instance.uuid, action, context, now, arguments, secrets)


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
    for capability in action.needs:
        if agents.lacks(connection, instance.host, capability):
            raise Conflict(
                f"Cannot '{action.record}' instance {instance.uuid}: the requested functionality is not supported. The "
                f"driver of its host lacks the capability `{capability}`."
            )


async def _offload(request: ApiRequest) -> Answer:
    """Begin to take a shelved server off its host."""
    services, action = request.services, offloads.OFFLOAD
    found = await find(request)
    _check(request, found.instance, action)
    assert found.cell is not None
    unit = partial(offloads.begin, uuid=found.instance.uuid, context=request.context, now=services.clock.now())
    if not await write_cell(services, found.cell, unit):
        await _refuse(request, action)
    await _tell(request, found, action)
    return Answer()


async def _unshelve(request: ApiRequest) -> Answer:
    """Begin to start a shelved server where it is, or to build one that is on no host from its image."""
    asked = request.body["unshelve"]
    found = await find(request)
    server = found.instance
    if server.state is not State.SHELVED_OFFLOADED:
        _check(request, server, ACTIONS["unshelve"])
        if server_shelving.asks_for_place(request, asked):
            raise server_shelving.refuse_place(server)
        return await begin(request, ACTIONS["unshelve"])
    _check(request, server, unshelves.UNSHELVE)
    if not await server_shelving.unshelve(request, found, asked):
        await _refuse(request, unshelves.UNSHELVE)
    await _tell(request, found, unshelves.UNSHELVE)
    return Answer()


_WITHOUT_ROW: dict[str, Handler] = {
    "os-getConsoleOutput": guest_questions.console_output,
    "addSecurityGroup": server_addresses.add_group,
    "removeSecurityGroup": server_addresses.remove_group,
    "addFloatingIp": proxied_addresses.add_floating,
    "removeFloatingIp": proxied_addresses.remove_floating,
    "addFixedIp": proxied_addresses.add_fixed,
    "removeFixedIp": proxied_addresses.remove_fixed,
}
"""Keys that change nothing in the row of a server."""

_OTHERS: dict[str, Handler] = {"delete": servers.delete, "shelve_offload": _offload, "unshelve": _unshelve}
"""Actions that are carried out in a way of their own, or where something else does the same."""


async def _carry_out(request: ApiRequest, action: Action, arguments: dict[str, Any]) -> Answer:
    """Carry out an action that is one write of the server's row. A server that is just being mapped is waited for."""
    for _ in range(TRIES):
        found = await find(request)
        if found.cell is not None:
            if action.name in _CHARGES:
                await _CHARGES[action.name](request, found.instance)
            if await carry_out(request, found, action, arguments):
                return Answer()
        await asyncio.sleep(PAUSE_SECONDS)
    raise Conflict(f"Instance {request.params['id']} is not ready")


async def carry_out(request: ApiRequest, found: LocatedServer, action: Action, arguments: dict[str, Any]) -> bool:
    """Write an action that is one write of the server's row; False where the row is not there, or frozen for a moment.

    Raises Conflict for a server that is locked, or in no state that allows it.
    """
    services = request.services
    assert found.cell is not None
    unit = partial(
        row_actions.carry_out,
        uuid=found.instance.uuid,
        action=action,
        request=ActionRequest(action=action.name, context=request.context, arguments=arguments),
        check=_checked(request, action, found),
        host=services.runs_on,
        now=services.clock.now(),
    )
    over = await write_cell(services, found.cell, unit)
    if over is None:
        return False
    services.ended(over)
    return True


async def carry_out_and_tell(request: ApiRequest, action: Action, arguments: dict[str, Any]) -> Answer:
    """Carry out an action that is one write of the server's row, and tell its cell."""
    answer = await _carry_out(request, action, arguments)
    await _tell(request, await find(request), action)
    return answer


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
    if instance.host is None and action.name not in _WITHOUT_HOST:
        raise _not_ready(instance)


_WITHOUT_HOST = frozenset({"unshelve_offloaded"})
"""Actions on servers that are on no host."""

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


_WORK: dict[Kind, Work] = {Kind.GUEST: "actions", Kind.REHOST: "choices", Kind.REBUILD: "steps"}
"""By the kind of an action: for what its row waits."""

_WORK_OF: dict[str, Work] = {
    "revert_resize": "steps",
    "live_abort": "steps",
    "live_complete": "steps",
    "shelve_offload": "offloads",
    "unshelve_offloaded": "unshelves",
}
"""By the name of an action: for what its row waits, where its kind does not say that."""


async def _tell(request: ApiRequest, found: LocatedServer, action: Action, ended: Sequence[Over] | None = None) -> None:
    """Tell a cell that a server waits for an action. `ended`: what it ended, of which work may be left that waits."""
    assert found.cell is not None
    work = None if ended else _WORK_OF.get(action.name, _WORK.get(action.kind))
    await tell_cell(request, found.cell, () if work is None else (work,))


async def tell_cell(request: ApiRequest, cell: CellUuid, work: tuple[Work, ...]) -> None:
    """Tell a cell which work its rows wait for; none: any. It looks by itself, too, later."""
    try:
        await request.services.transport.cast(cell_conductor(cell), InstancesChanged(work=work), request.context)
    except (SkepError, OSError) as error:
        log.warning("cell conductor not notified", request=request.context.request_id, error=str(error))
