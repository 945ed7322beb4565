"""Calls to the cell conductor, repeated until they are answered: silence is never taken for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from skep.compute.conversation import Conversation
from skep.compute.drivers.base import DriverError
from skep.compute.settings import ComputeSettings
from skep.compute.work import AgentWork, Stopping
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.decoding import json_decoder
from skep.domain.disk_doors import DiskDoor
from skep.domain.errors import SkepError, StaleAgent, Unavailable
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.sessions import connections_label, contents_label, disks_label
from skep.domain.timelines import Moment, later
from skep.domain.volumes import ConnectedVolume, ConnectedVolumes
from skep.messages.base import Call, Cast
from skep.messages.to_cell_conductor import (
    AnswerAboutGuest,
    AttemptFailed,
    Built,
    Destroyed,
    GuestsFound,
    MayAct,
    MayBuild,
    MayMove,
    MayResume,
    MaySpawn,
    MoveStepDone,
    ReadContents,
    ReadNetworks,
    Registration,
    ReportGuests,
    RequestConnections,
    RequestDisks,
    RequestTicket,
    TaskDone,
)
from skep.messages.to_compute import MoveStep
from skep.neighbours.images.tickets import ImageTicket, NoTicket

ReplyT = TypeVar("ReplyT")
log = structlog.get_logger("skep.compute")

SPOKEN = (
    MayAct,
    MayBuild,
    MaySpawn,
    ReadContents,
    RequestTicket,
    RequestConnections,
    RequestDisks,
    Built,
    AttemptFailed,
    Destroyed,
    ReportGuests,
    TaskDone,
    GuestsFound,
    MayMove,
    MayResume,
    MoveStepDone,
    AnswerAboutGuest,
    ReadNetworks,
)
"""What only the youngest of several agents with one identity may say."""

FIRST_DISKS_PAUSE = 0.05
"""Seconds before the answer of another host is asked for again; doubled up to `resend_seconds`."""

LONGEST_PAUSE = 16
"""Times `resend_seconds`: the pause between two sendings doubles up to it."""


class NoConnections(Exception):
    """This host is not told how it reaches the volumes of a server."""


class Upcalls:
    """An agent's way to its cell conductor."""

    def __init__(
        self, conversation: Conversation, host: str, settings: ComputeSettings, work: AgentWork, clock: Clock
    ) -> None:
        self._conversation = conversation
        self._host = host
        self._settings = settings
        self._work = work
        self._clock = clock
        self.takes_guests = False
        """Whether the conductor takes `ReportGuests`, as it said when it last took a report."""
        self.takes_networks: bool | None = None
        """Whether the conductor takes `ReadNetworks`, as it said when it last took a report; None: it took none yet."""
        self._registered = asyncio.Event()
        self._takes_tickets = False
        """Whether the conductor takes `RequestTicket`, as it said when it last took a registration."""
        self.seen: Moment | None = None
        """The latest moment of the cell's database that was heard of."""
        self.on_stale: Callable[[], None] = _nothing
        """Called when the conductor answers that a younger agent with this identity has registered."""

    @property
    def incarnation(self) -> int | None:
        """The agent's number in its cell, which goes with what it says; None before it is registered."""
        return self._conversation.incarnation

    @incarnation.setter
    def incarnation(self, number: int) -> None:
        self._conversation.incarnation = number

    @property
    def is_proven(self) -> bool:
        """Whether the conductors know for sure who speaks."""
        return self._conversation.is_proven

    async def ask(
        self,
        call: Call[ReplyT],
        *,
        context: RequestContext | None = None,
        wanted: Callable[[], bool] | None = None,
        only_when_away: bool = False,
    ) -> ReplyT | None:
        """Send `call` until it is answered; None when the answer is no longer `wanted`.

        Raises Stopping when the agent stops. `only_when_away`: it is sent again only while nobody can answer, and
        another error is raised.
        """
        answered = await self.ask_in_time(call, context=context, wanted=wanted, only_when_away=only_when_away)
        return None if answered is None else answered[0]

    async def ask_in_time(
        self,
        call: Call[ReplyT],
        *,
        context: RequestContext | None = None,
        wanted: Callable[[], bool] | None = None,
        only_when_away: bool = False,
    ) -> tuple[ReplyT, float] | None:
        """Do as `ask` does; return with the answer when it was asked for, by `Clock.elapsed`."""
        pause = self._settings.resend_seconds
        while wanted is None or wanted():
            self._work.check()
            try:
                asked_at = self._clock.elapsed()
                return await self.once(call, context=context), asked_at
            except StaleAgent:
                self.on_stale()
                raise Stopping from None
            except SkepError as error:
                if only_when_away and not isinstance(error, Unavailable):
                    raise
                # An answer that is an error is no answer either: a conductor that cannot store now will be able to.
                tell = log.info if isinstance(error, Unavailable) else log.error
                tell("not answered, sent again", call=call.wire_name, host=self._host, error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE * self._settings.resend_seconds)
        return None

    async def contents(
        self,
        instance: InstanceUuid,
        attempt: int,
        context: RequestContext,
        wanted: Callable[[], bool],
        task_id: str = "",
    ) -> bytes | None:
        """Return the password and files of a guest as JSON, from above the cell; None when they are not to be had.

        With `task_id` those that an action is told. Raises Stopping when the agent stops.
        """
        call = ReadContents(instance=instance, attempt=attempt, host=self._host, task_id=task_id)
        about = contents_label(instance, attempt, task_id)
        while True:
            try:
                answer = await self.ask(call, context=context, wanted=wanted, only_when_away=True)
            except SkepError as error:
                # Conductors of before 0.6.0 do not know the question.
                log.warning("contents of a guest not received", host=self._host, error=str(error))
                return None
            if answer is None or answer.sealed is None:
                return None
            plain = self._conversation.opened(about, answer.sealed)
            if plain is not None:
                return plain
            log.error("contents of a guest were sealed for another run of this agent", host=self._host)
            await asyncio.sleep(self._settings.resend_seconds)

    async def may_resume(self, instance: InstanceUuid, attempt: int) -> bool:
        """Ask whether a guest is to run after a boot of the machine. Raises Stopping when the agent stops."""
        await self._registered.wait()
        call = MayResume(instance=instance, attempt=attempt, host=self._host)
        try:
            answer = await self.ask(call, only_when_away=True)
        except SkepError as error:
            # Conductors of before 0.11.0 do not know the question.
            log.warning("not known whether a guest is to run", host=self._host, instance=instance, error=str(error))
            return False
        return answer is not None and answer.granted

    async def once(self, call: Call[ReplyT], *, context: RequestContext | None = None) -> ReplyT:
        """Send `call` one time. Raises Unreachable when it is not answered, or the error that was answered."""
        message = self._spoken(call)
        reply: ReplyT = await self._conversation.call(message, self._settings.call_timeout_seconds, context)
        return reply

    async def ticket(
        self,
        instance: InstanceUuid,
        attempt: int,
        image: str,
        context: RequestContext,
        task_id: str = "",
        *,
        store: bool = False,
        question: str = "",
    ) -> ImageTicket:
        """Return a ticket for the image of a server that this host builds, or with `task_id` acts on.

        `store`: for the one that an action makes of the server. `question`: for one that no server needs yet, by the
        question that names it. Raises NoTicket where there is none for this build or
        action, Stopping when the agent stops.
        """
        await self._registered.wait()
        if not self._takes_tickets:
            raise NoTicket("cell conductors of before 0.7.0 give no tickets")
        call = RequestTicket(
            instance=instance,
            attempt=attempt,
            host=self._host,
            image=image,
            task_id=task_id,
            store=store,
            question=question,
        )
        while True:
            try:
                answer = await self.ask(call, context=context, only_when_away=True)
            except SkepError as error:
                raise NoTicket(str(error)) from error
            if answer is None or answer.sealed is None:
                raise NoTicket(answer.reason if answer is not None else "")
            plain = self._conversation.opened(("ticket", instance, attempt, image), answer.sealed)
            if plain is not None:
                return json_decoder(ImageTicket).decode(plain)
            log.error("ticket for an image was sealed for another run of this agent", host=self._host)
            await asyncio.sleep(self._settings.resend_seconds)

    async def connections(
        self, instance: InstanceUuid, attempt: int, context: RequestContext, attachments: Sequence[str] = ()
    ) -> tuple[ConnectedVolume, ...]:
        """Return how this host reaches the volumes of a server, from above the cell; of all, or of these attachments.

        Raises NoConnections where it is not told, Stopping when the agent stops.
        """
        call = RequestConnections(instance=instance, attempt=attempt, host=self._host, attachments=tuple(attachments))
        while True:
            try:
                answer = await self.ask(call, context=context, only_when_away=True)
            except SkepError as error:
                # Conductors of before 0.11.0 do not know the question.
                raise NoConnections(str(error)) from error
            if answer is None or answer.sealed is None:
                raise NoConnections(answer.reason if answer is not None else "")
            plain = self._conversation.opened(connections_label(instance, attempt), answer.sealed)
            if plain is not None:
                return json_decoder(ConnectedVolumes).decode(plain).volumes
            log.error("connections of volumes were sealed for another run of this agent", host=self._host)
            await asyncio.sleep(self._settings.resend_seconds)

    async def disks(self, order: MoveStep, certificate: bytes) -> DiskDoor:
        """Return where the target of a cold move gets the disks. Raises DriverError where it gets none, Stopping."""
        call = RequestDisks(
            question=new_uuid(),
            instance=order.instance.uuid,
            attempt=order.attempt,
            host=self._host,
            move=order.move,
            certificate=certificate,
        )
        pause = FIRST_DISKS_PAUSE
        while True:
            answer = await self.ask(call, context=order.context)
            assert answer is not None
            if answer.sealed is not None:
                plain = self._conversation.opened(disks_label(order.move, call.question), answer.sealed)
                if plain is None:
                    raise DriverError("StorageUnavailable", "the answer is sealed for another run of this agent")
                return json_decoder(DiskDoor).decode(plain)
            if not answer.waits:
                raise DriverError("StorageUnavailable", answer.reason)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._settings.resend_seconds)

    def registered(self, answer: Registration) -> None:
        """Remember what a conductor said when it took a registration."""
        self._takes_tickets = answer.takes_tickets
        self.saw(answer.moment)
        self._registered.set()

    def saw(self, moment: Moment | None) -> None:
        """Remember a moment of the cell's database, if it is the latest."""
        self.seen = later(self.seen, moment)

    async def cast(self, cast: Cast) -> None:
        """Send a hint."""
        await self._conversation.cast(self._spoken(cast))

    def _spoken(self, message: Any) -> Any:
        if isinstance(message, SPOKEN) and self.incarnation is not None:
            return msgspec.structs.replace(message, incarnation=self.incarnation)
        return message


def _nothing() -> None:
    return None
