"""Instance actions and their events as answers show them."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.api.views.servers import host_id
from skep.database.api.instance_mappings import Mapping
from skep.database.cell.actions import CREATE, Action, ActionEvent
from skep.domain.builds import AttemptRecord
from skep.domain.clock import isoformat_micro
from skep.domain.instances import Instance

Json = dict[str, Any]

BUILD_EVENT = "compute__do_build_and_run_instance"
"""Nova's name of what a host does for a create."""
NO_HOST_EVENT = "conductor_schedule_and_build_instances"
"""Nova's name of a create for which there was no host."""


def action(of: Action) -> Json:
    """Return an action without its events."""
    return {
        "action": of.action,
        "instance_uuid": of.instance,
        "request_id": of.request_id,
        "user_id": of.user_id,
        "project_id": of.project_id,
        "start_time": isoformat_micro(of.started_at),
        "message": of.message,
        "updated_at": isoformat_micro(of.updated_at or of.started_at),
    }


def create_of(instance: Instance) -> Action:
    """Return the action of a create whose server has no cell yet."""
    return Action(
        instance=instance.uuid,
        request_id=instance.request_id,
        action=CREATE,
        user_id=instance.user_id,
        project_id=instance.project_id,
        started_at=instance.created_at,
    )


def known_create(mapping: Mapping, user_id: str) -> Action:
    """Return the create of a server whose cell cannot be read; its message says that this is not all."""
    return Action(
        instance=mapping.instance,
        request_id=mapping.request_id,
        action=CREATE,
        user_id=user_id,
        project_id=mapping.project_id,
        started_at=mapping.created_at,
        message="Unknown: what became of it and what was done later cannot be read now",
    )


def with_outcome(create: Action, instance: Instance, attempts: list[AttemptRecord]) -> Action:
    """Return the action of a create with what became of it: it stands in its attempts, or in the server's row."""
    built = next((one.built_at for one in attempts if one.role == "build" and one.built_at is not None), None)
    if built is not None:
        return msgspec.structs.replace(create, updated_at=built)
    if instance.launched_at is not None:
        return msgspec.structs.replace(create, updated_at=instance.launched_at)
    if instance.fault is not None:
        return msgspec.structs.replace(create, updated_at=instance.fault.created_at, message=instance.fault.message)
    return create


def create_events(attempts: list[AttemptRecord], instance: Instance) -> list[ActionEvent]:
    """Return the events of a create, newest first: one for each attempt to build; those of moves are not its own."""
    return [_attempt(one, instance) for one in reversed(attempts) if one.role == "build"]


def _attempt(one: AttemptRecord, instance: Instance) -> ActionEvent:
    message = one.message if one.built_at is None else None
    if one.host is None and instance.fault is not None:
        message = instance.fault.message
    return ActionEvent(
        instance=instance.uuid,
        request_id=instance.request_id,
        event=BUILD_EVENT if one.host is not None else NO_HOST_EVENT,
        host=one.host,
        started_at=one.started_at,
        finished_at=one.built_at or one.ended_at,
        result=_result(one),
        details=message,
    )


def _result(one: AttemptRecord) -> str | None:
    if one.built_at is not None:
        return "Success"
    if one.ended_at is None:
        return None
    return "Success" if one.outcome in ("built", "destroyed") and one.error is None else "Error"


def event(of: ActionEvent, project_id: str, *, hosts: bool, tracebacks: bool, details: bool) -> Json:
    """Return an event with what the caller may see."""
    shown: Json = {
        "event": of.event,
        "start_time": isoformat_micro(of.started_at),
        "finish_time": None if of.finished_at is None else isoformat_micro(of.finished_at),
        "result": of.result,
        "hostId": host_id(project_id, of.host),
    }
    if tracebacks:
        # What went wrong, to those who may know all of it; before 2.84 nothing else shows it.
        shown["traceback"] = of.traceback or (of.details if of.result == "Error" else None)
    if hosts:
        shown["host"] = of.host
    if details:
        shown["details"] = of.details
    return shown
