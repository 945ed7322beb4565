"""Actions on a server: start, stop, reboot."""

from __future__ import annotations

from functools import partial

import structlog

from skep.api.cells import write_cell
from skep.api.handlers.server_lookup import Found, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import tasks
from skep.domain.errors import BadRequest, Conflict, SkepError
from skep.domain.instances import BUILD_STATES, Instance, State, Task, task_state, vm_state
from skep.messages.to_cell_conductor import InstancesChanged
from skep.transport.base import cell_conductor

log = structlog.get_logger("skep.api.servers")

STARTED_FROM = frozenset({State.STOPPED})
STOPPED_FROM = frozenset({State.ACTIVE, State.ERROR})
SOFT_REBOOTED_FROM = frozenset({State.ACTIVE})
HARD_REBOOTED_FROM = frozenset({State.ACTIVE, State.STOPPED, State.ERROR})


async def start(request: ApiRequest) -> Answer:
    """Power a server on."""
    return await _begin(request, "start", Task.POWERING_ON, STARTED_FROM)


async def stop(request: ApiRequest) -> Answer:
    """Power a server off."""
    return await _begin(request, "stop", Task.POWERING_OFF, STOPPED_FROM)


async def reboot(request: ApiRequest) -> Answer:
    """Reboot a server, softly or hard."""
    if request.body["reboot"]["type"].upper() == "HARD":
        return await _begin(request, "reboot", Task.REBOOTING_HARD, HARD_REBOOTED_FROM)
    return await _begin(request, "reboot", Task.REBOOTING, SOFT_REBOOTED_FROM)


async def not_there_yet(request: ApiRequest) -> Answer:
    """Refuse an action of Nova that this release does not have."""
    await find(request)
    raise BadRequest(f"The action {next(iter(request.body))} is not available in this cloud")


async def _begin(request: ApiRequest, word: str, task: Task, allowed: frozenset[State]) -> Answer:
    """Write the task into the server's row and tell its cell."""
    services = request.services
    found = await find(request)
    instance = found.instance
    refuse_if_locked(request, instance)
    _check(instance, word, allowed)
    assert found.cell is not None
    unit = partial(
        tasks.begin,
        uuid=instance.uuid,
        task=task,
        allowed=allowed,
        context=request.context,
        now=services.clock.now(),
    )
    if not await write_cell(services, found.cell, unit):
        await _refuse(request, word, allowed)
    await _tell(request, found)
    return Answer()


def _check(instance: Instance, word: str, allowed: frozenset[State]) -> None:
    """Raise Conflict when the server is in no state that allows it, or something else is being done to it."""
    if instance.state in BUILD_STATES or instance.state not in allowed:
        raise _conflict(instance, word, f"vm_state {vm_state(instance.state)}")
    if instance.task is not None:
        raise _conflict(instance, word, f"task_state {task_state(instance.state, instance.task)}")
    if instance.host is None:
        raise Conflict(f"Instance {instance.uuid} is not ready")


async def _refuse(request: ApiRequest, word: str, allowed: frozenset[State]) -> None:
    """Say why the row did not take the task: it changed after it was read."""
    instance = (await find(request)).instance
    _check(instance, word, allowed)
    raise _conflict(instance, word, "another action")


def _conflict(instance: Instance, word: str, state: str) -> Conflict:
    return Conflict(f"Cannot '{word}' instance {instance.uuid} while it is in {state}")


async def _tell(request: ApiRequest, found: Found) -> None:
    assert found.cell is not None
    try:
        await request.services.transport.cast(cell_conductor(found.cell), InstancesChanged(), request.context)
    except (SkepError, OSError) as error:
        log.warning("cell conductor not told", request=request.context.request_id, error=str(error))
