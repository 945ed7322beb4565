"""The story of questions: what users ask about a guest, answered once from the hypervisor. Nothing of it is noted.

One question is about no guest: whether the host has fetched images. Another one is about a guest that is put aside:
where its disks are to be had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.compute.cached_images import cache_images
from skep.compute.console_lines import LINES, ConsoleLines, TooManyLines, line_of
from skep.compute.disk_doors import DiskDoors, TooManyDoors
from skep.compute.drivers.base import ConsoleOutputDriver, DiagnosticsDriver, Driver, DriverError
from skep.compute.drivers.capabilities import missing
from skep.compute.host import Host
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.disk_doors import DisksQuestion
from skep.domain.errors import SkepError
from skep.domain.ids import RequestId
from skep.domain.questions import MOST_BYTES, MOST_CHARACTERS, NEEDS, Topic
from skep.domain.sessions import disks_label, seal_to_run
from skep.messages.to_cell_conductor import AnswerAboutGuest
from skep.messages.to_compute import AskAboutGuest

log = structlog.get_logger("skep.compute")

MOST_AT_ONCE = 64
"""A host that has so many questions in hand answers no further one; whoever asked asks again."""


NOBODY = RequestContext(request_id=RequestId(""))
"""Of a question that came without who asks."""


async def _console_output(driver: ConsoleOutputDriver, asked: AskAboutGuest) -> bytes:
    """Return the last lines of a console as Nova counts them: of -1 the first line is left out."""
    output = await driver.console_output(asked.instance, MOST_BYTES)
    length = asked.arguments.get("length")
    if length is not None:
        output = b"\n".join(output.split(b"\n")[-length:]) if length else b""
    return output[-MOST_BYTES:]


async def _diagnostics(driver: DiagnosticsDriver, asked: AskAboutGuest) -> bytes:
    return msgspec.json.encode(await driver.diagnostics(asked.instance))


ANSWERS: dict[Topic, Callable[[Any, AskAboutGuest], Awaitable[bytes]]] = {
    Topic.CONSOLE_OUTPUT: _console_output,
    Topic.DIAGNOSTICS: _diagnostics,
}
"""What is asked -> what a driver with the capability answers."""


class GuestQuestions:
    """The questions of one host that are not answered yet."""

    def __init__(self, host: Host, lines: ConsoleLines, doors: DiskDoors | None = None) -> None:
        self._host = host
        self._lines = lines
        self._doors = doors
        self._in_hand: set[str] = set()

    def take(self, asked: AskAboutGuest, context: RequestContext | None = None) -> None:
        """Answer a question, unless it is in hand."""
        if asked.question in self._in_hand or self._host.work.stopping or len(self._in_hand) >= MOST_AT_ONCE:
            return
        self._in_hand.add(asked.question)
        self._host.work.start(self._story(asked, context or NOBODY), name=f"question {asked.topic} {asked.instance}")

    async def _story(self, asked: AskAboutGuest, context: RequestContext) -> None:
        host = self._host
        try:
            content = await self._answer(asked, context)
            error = None if isinstance(content, bytes) else content[:MOST_CHARACTERS]
            said = AnswerAboutGuest(
                question=asked.question,
                host=host.name,
                content=content if isinstance(content, bytes) else b"",
                error=error,
            )
            try:
                await host.upcalls.once(said)
            except SkepError as unanswered:
                # Told again, it answers again.
                log.info("answer not sent", host=host.name, instance=asked.instance, error=str(unanswered))
        finally:
            self._in_hand.discard(asked.question)

    async def _answer(self, asked: AskAboutGuest, context: RequestContext) -> bytes | str:
        """Return the answer, or the error that there is instead."""
        host = self._host
        topic = next((one for one in Topic if one == asked.topic), None)
        if topic is None:
            return f"NotSupportedByAgent: the agent of host {host.name} knows no question `{asked.topic}`"
        if NEEDS[topic] not in host.capabilities:
            return missing(NEEDS[topic], host.name)
        if topic is Topic.CACHE_IMAGES:
            return await cache_images(host, asked, context)
        if topic is Topic.DISKS:
            return await self._disks(asked)
        if host.guests.get(asked.instance) != asked.attempt:
            return f"InstanceNotFound: there is no guest of {asked.instance} on host {host.name}"
        if topic in LINES:
            return await self._door(topic, asked)
        result = await host.calls.read("question", partial(_ask, ANSWERS[topic], host.driver, asked))
        return f"{result.error}: {result.message}" if isinstance(result, BuildFailure) else result

    async def _door(self, topic: Topic, asked: AskAboutGuest) -> bytes | str:
        seconds = asked.arguments.get("seconds")
        tried = await self._host.calls.read("question", partial(_try_line, self._host.driver, topic, asked))
        if isinstance(tried, BuildFailure):
            return f"{tried.error}: {tried.message}"
        try:
            door = await self._lines.open(
                topic, asked.instance, asked.attempt, float(seconds) if isinstance(seconds, int | float) else 1.0
            )
        except TooManyLines:
            return f"TooManyConsoles: host {self._host.name} has as many consoles open as it may"
        except OSError as error:
            return f"ConsoleNotReady: host {self._host.name} has no port for consoles: {error.strerror}"
        return msgspec.json.encode(door)

    async def _disks(self, asked: AskAboutGuest) -> bytes | str:
        assert self._doors is not None
        try:
            told = convert(asked.arguments, DisksQuestion)
            door = await self._doors.open(asked.instance, asked.attempt, told.move, told.certificate)
            about = disks_label(told.move, asked.question)
            return seal_to_run(told.key, about, msgspec.json.encode(door))
        except TooManyDoors:
            return f"TooManyMoves: host {self._host.name} gives away the disks of as many servers as it may"
        except DriverError as error:
            return f"{error.error}: {error.message}"
        except (OSError, ValueError, msgspec.ValidationError) as error:
            return f"StorageUnavailable: host {self._host.name} cannot give disks away: {error}"


async def _try_line(driver: Driver, topic: Topic, asked: AskAboutGuest) -> None:
    """Raise DriverError where there is no line."""
    await (await line_of(driver, topic, asked.instance)).close()


async def _ask(
    answering: Callable[[Any, AskAboutGuest], Awaitable[bytes]], driver: object, asked: AskAboutGuest
) -> bytes:
    return await answering(driver, asked)
