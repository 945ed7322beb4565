"""What only the host of a server can say: asked through a row of its cell, and waited for no longer than a while."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.cells import read_cell, write_cell
from skep.api.handlers.server_lookup import LocatedServer, find
from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.cell import agents, guest_questions
from skep.domain.clock import SECOND
from skep.domain.decoding import json_decoder
from skep.domain.errors import Conflict, NotFound, SkepError
from skep.domain.ids import new_uuid
from skep.domain.instances import Instance
from skep.domain.questions import NEEDS, GuestAnswer, GuestDiagnostics, GuestQuestion, Topic
from skep.messages.to_cell_conductor import QuestionsAsked
from skep.transport.base import cell_conductor

log = structlog.get_logger("skep.api.servers")

LOOK_SECONDS = (0.02, 0.3)
"""The first and the longest pause between two looks for an answer; each is half as long again as the last."""

STANDARD_SINCE = 48
"""Since then diagnostics have the same fields with every driver."""

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f]")
"""Characters that no client wants to see (Nova's)."""


async def console_output(request: ApiRequest) -> Answer:
    """Answer the end of what a guest has written to its console."""
    found = await find(request)
    length = (request.body["os-getConsoleOutput"] or {}).get("length")
    length = None if length is None else int(length)
    check_host(found.instance)
    if length == 0:
        return Answer({"output": ""})
    content = await ask_host(request, found, Topic.CONSOLE_OUTPUT, {"length": length}, "get_console_output")
    return Answer({"output": _UNSEEN.sub("", content.decode(errors="replace"))})


async def diagnostics(request: ApiRequest) -> Answer:
    """Answer what the hypervisor measures of a guest that runs."""
    found = await find(request)
    check_host(found.instance)
    content = await ask_host(request, found, Topic.DIAGNOSTICS, {}, "get_diagnostics")
    try:
        said = json_decoder(GuestDiagnostics).decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # A driver of another package may measure what this release has no field for.
        log.error("diagnostics not readable", host=found.instance.host, instance=found.instance.uuid, error=str(error))
        raise Conflict(
            f"Cannot 'get_diagnostics' instance {found.instance.uuid}: its host's answer cannot be read"
        ) from error
    if request.version < STANDARD_SINCE:
        return Answer(dict(said.raw))
    return Answer(_standard(said, found.instance, request.services.clock.now()))


def _standard(said: GuestDiagnostics, server: Instance, now: int) -> dict[str, Any]:
    since_launch = None if server.launched_at is None else max(0, now - server.launched_at) // SECOND
    return {
        "state": said.state,
        "driver": said.driver,
        "hypervisor": said.hypervisor,
        "hypervisor_os": said.hypervisor_os,
        # Nova counts from the launch, too.
        "uptime": since_launch if said.uptime is None else said.uptime,
        "config_drive": server.config_drive,
        "num_cpus": len(said.cpus),
        "num_nics": len(said.nics),
        "num_disks": len(said.disks),
        "memory_details": {"maximum": said.memory_maximum, "used": said.memory_used},
        "cpu_details": msgspec.to_builtins(said.cpus),
        "nic_details": msgspec.to_builtins(said.nics),
        "disk_details": msgspec.to_builtins(said.disks),
    }


def check_host(server: Instance) -> None:
    """Raise Conflict for a server without a guest."""
    if server.host is None or server.launched_at is None:
        raise Conflict(f"Instance {server.uuid} is not ready")


async def ask_host(
    request: ApiRequest, found: LocatedServer, topic: Topic, arguments: dict[str, Any], method: str
) -> bytes:
    """Return what the host of a server answers.

    Raises Conflict where it cannot, or not in time; NotFound where it has no such guest.
    """
    services, server = request.services, found.instance
    assert found.cell is not None
    assert server.host is not None
    question = GuestQuestion(
        id=new_uuid(),
        instance=server.uuid,
        attempt=server.attempt,
        host=server.host,
        topic=topic,
        context=request.context,
        arguments=arguments,
    )
    now = services.clock.now()
    await write_cell(services, found.cell, partial(_note, question=question, now=now, topic=topic))
    try:
        try:
            await services.transport.cast(cell_conductor(found.cell), QuestionsAsked(), request.context)
        except (SkepError, OSError) as error:
            # It looks by itself, too.
            log.warning("cell conductor not notified", request=request.context.request_id, error=str(error))
        said = await _wait(request, found, question.id)
    finally:
        await write_cell(services, found.cell, partial(guest_questions.forget, questions=[question.id]))
    if said is None:
        raise Conflict(
            f"The host of instance {server.uuid} did not answer within {services.settings.answer_seconds:g} seconds. "
            "Nothing was changed; try again later."
        )
    if said.error is not None:
        raise _error(said.error, server, method)
    return said.content


def _note(connection: Connection, question: GuestQuestion, now: int, topic: Topic) -> None:
    if agents.lacks(connection, question.host, NEEDS[topic]):
        raise Conflict(
            f"The requested functionality is not supported: the driver of the host of instance {question.instance} "
            f"lacks the capability `{NEEDS[topic]}`."
        )
    if not guest_questions.ask(connection, question, now):
        raise Conflict(f"Too many questions about instance {question.instance} wait for an answer. Ask again later.")


async def _wait(request: ApiRequest, found: LocatedServer, question: str) -> GuestAnswer | None:
    services, (pause, longest) = request.services, LOOK_SECONDS
    assert found.cell is not None
    until = time.monotonic() + services.settings.answer_seconds
    while True:
        said = await read_cell(services, found.cell, partial(guest_questions.answered, question=question))
        left = until - time.monotonic()
        if said is not None or left <= 0:
            return said
        await asyncio.sleep(min(pause, left))
        pause = min(1.5 * pause, longest)


def _error(said: str, server: Instance, method: str) -> SkepError:
    """Return what a client hears of an error of the host."""
    name, _, text = said.partition(": ")
    if name == "InstanceNotRunning":
        state = server.power_state.name.lower()
        return Conflict(f"Cannot '{method}' instance {server.uuid} while it is in power state {state}: {text}")
    if name == "InstanceNotFound":
        return NotFound(f"Instance {server.uuid} could not be found on its host.")
    return Conflict(f"Cannot '{method}' instance {server.uuid}: {said}")
