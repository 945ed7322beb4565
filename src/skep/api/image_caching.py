"""Images of an aggregate on their way to its hosts: one process asks the hosts in turn and tells how it goes.

As in Nova it is an effort, no promise: what the process has not asked when it ends is not asked. What a host was asked
stands in a row of its cell, so the death of a conductor or of an agent only delays it; a row whose asker has gone is
forgotten, as every question is (`domain.questions`).
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from skep.api.cells import read_cell, write_cell
from skep.api.operator_state import MappedHost, hosts
from skep.api.services import ApiServices
from skep.api.telling import aggregate_facts
from skep.database import Connection
from skep.database.api.aggregates import Aggregate
from skep.database.cell import agents, guest_questions
from skep.domain import notifications
from skep.domain.context import RequestContext
from skep.domain.decoding import json_decoder
from skep.domain.errors import SkepError
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.image_caching import IN_THE_CACHE, CachedImage, CacheOutcome, SealedCaching
from skep.domain.images import Image
from skep.domain.questions import NEEDS, GuestAnswer, GuestQuestion, Topic
from skep.messages.to_cell_conductor import QuestionsAsked
from skep.telemetry.logs import get_logger
from skep.transport.base import cell_conductor

log = get_logger(__name__)

LOOK_SECONDS = (0.05, 2.0)
"""The first and the longest pause between two looks for the answer of a host; each is twice as long as the last."""
CHECK_SECONDS = 10.0
"""So often the question is kept from being forgotten, and the host is looked at: a dead one is waited for no longer."""

START, PROGRESS, END = (f"aggregate.cache_images.{when}" for when in ("start", "progress", "end"))


@dataclass(kw_only=True)
class Caching:
    """One request: these images on all hosts of an aggregate."""

    services: ApiServices
    context: RequestContext
    aggregate: Aggregate
    images: Sequence[Image]
    _done: int = 0
    _outcomes: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Ask all hosts, a few at a time. What goes wrong with one is told, and keeps no other from its images."""
        names = [image.id for image in self.images]
        said = {"aggregate": self.aggregate.id, "request": self.context.request_id}
        log.info("images to be cached", images=names, hosts=len(self.aggregate.hosts), **said)
        began = time.monotonic()
        self.services.tell(START, notifications.aggregate(aggregate_facts(self.aggregate)), self.context)
        turns = asyncio.Semaphore(self.services.settings.precache_concurrency)
        async with asyncio.TaskGroup() as group:
            for host in self.aggregate.hosts:
                group.create_task(self._in_turn(turns, host), name=f"cache images on {host}")
        self.services.tell(END, notifications.aggregate(aggregate_facts(self.aggregate)), self.context)
        log.info("images cached", seconds=round(time.monotonic() - began, 3), **said, **self._outcomes)

    async def _in_turn(self, turns: asyncio.Semaphore, host: str) -> None:
        async with turns:
            try:
                found = await self._on_host(host)
            except SkepError as error:
                found = self._all(CacheOutcome.ERROR, str(error))
        self._done += 1
        for one in found:
            self._outcomes[one.outcome.value] += 1
            self.services.count_precached(one.outcome.value)
            tell = log.info if one.outcome in IN_THE_CACHE else log.warning
            tell(
                "image of an aggregate",
                aggregate=self.aggregate.id,
                host=host,
                image=one.id,
                outcome=one.outcome.value,
                reason=one.reason,
                request=self.context.request_id,
            )
        told = notifications.cached(
            aggregate_facts(self.aggregate),
            host,
            cached=[one.id for one in found if one.outcome in IN_THE_CACHE],
            failed=[one.id for one in found if one.outcome not in IN_THE_CACHE],
            index=self._done,
            total=len(self.aggregate.hosts),
        )
        self.services.tell(PROGRESS, told, self.context)

    def _all(self, outcome: CacheOutcome, reason: str) -> list[CachedImage]:
        return [CachedImage(id=image.id, outcome=outcome, reason=reason) for image in self.images]

    async def _on_host(self, host: str) -> list[CachedImage]:
        found = await self._host(host)
        if found is None:
            return self._all(CacheOutcome.ERROR, f"host {host} is no host any more")
        if not found.is_up:
            return self._all(CacheOutcome.ERROR, f"host {host} is down")
        cell = found.mapping.cell
        question = self._question(host)
        services, now = self.services, self.services.clock.now()
        if not await write_cell(services, cell, partial(_ask, question=question, now=now)):
            lacking = f"the driver of host {host} lacks the capability `{NEEDS[Topic.CACHE_IMAGES]}`"
            return self._all(CacheOutcome.UNSUPPORTED, lacking)
        try:
            await self._nudge(found)
            said = await self._answer(found, question.id)
        finally:
            await write_cell(services, cell, partial(guest_questions.forget, questions=[question.id]))
        return self._read(said)

    async def _host(self, name: str) -> MappedHost | None:
        everything = await hosts(self.services)
        return next((one for one in everything if one.mapping.host == name), None)

    def _question(self, host: str) -> GuestQuestion:
        identifier = new_uuid()
        # Hosts need none of the properties, and a message has an end.
        images = [msgspec.to_builtins(msgspec.structs.replace(image, properties={})) for image in self.images]
        meant = SealedCaching(question=identifier, host=host, images=tuple(image.id for image in self.images))
        sealed = base64.b64encode(self.services.seal(msgspec.json.encode(meant))).decode()
        return GuestQuestion(
            id=identifier,
            instance=InstanceUuid(identifier),
            attempt=0,
            host=host,
            topic=Topic.CACHE_IMAGES,
            context=self.context,
            arguments={"images": images, "sealed": sealed},
        )

    async def _nudge(self, found: MappedHost) -> None:
        try:
            await self.services.transport.cast(cell_conductor(found.mapping.cell), QuestionsAsked(), self.context)
        except (SkepError, OSError) as error:
            # It looks by itself, too.
            log.warning("cell conductor not notified", request=self.context.request_id, error=str(error))

    async def _answer(self, found: MappedHost, question: str) -> GuestAnswer:
        """Wait for the answer of a host: for as long as it lives, and no longer than a host may take."""
        services, (pause, longest) = self.services, LOOK_SECONDS
        cell, host = found.mapping.cell, found.mapping.host
        began = checked = time.monotonic()
        while True:
            said = await read_cell(services, cell, partial(guest_questions.answered, question=question))
            if said is not None:
                return said
            now = time.monotonic()
            if now - began >= services.settings.precache_seconds:
                return GuestAnswer(error=f"host {host} has not answered in {services.settings.precache_seconds:g} s")
            if now - checked >= CHECK_SECONDS:
                checked = now
                await write_cell(
                    services, cell, partial(guest_questions.keep, question=question, now=services.clock.now())
                )
                alive = await self._host(host)
                if alive is None or not alive.is_up:
                    return GuestAnswer(error=f"host {host} went down")
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def _read(self, said: GuestAnswer) -> list[CachedImage]:
        if said.error is not None:
            unsupported = said.error.startswith("NotSupported")
            return self._all(CacheOutcome.UNSUPPORTED if unsupported else CacheOutcome.ERROR, said.error)
        try:
            answered = {one.id: one for one in json_decoder(list[CachedImage]).decode(said.content)}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._all(CacheOutcome.ERROR, f"the answer of the host cannot be read: {error}")
        silent = partial(CachedImage, outcome=CacheOutcome.ERROR, reason="the host said nothing of it")
        return [answered.get(image.id) or silent(id=image.id) for image in self.images]


def _ask(connection: Connection, question: GuestQuestion, now: int) -> bool:
    """Note a question; False where the driver of the host cannot do it."""
    if agents.lacks(connection, question.host, NEEDS[Topic.CACHE_IMAGES]):
        return False
    return guest_questions.ask(connection, question, now)
