"""One connection to a NATS server, and requests over it, many in flight.

A connection that breaks is over: whoever waits for an answer is told at once, and the next one begins with nothing left
of the old. The client library's own way, to reconnect and to repeat its subscriptions by itself, hides just what a
synchronizer has to know: consumers that fell silent, and a server that came back without its data.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import UnexpectedEOF

from skep.config.nats_security import NatsSecurity
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured, Unreachable

CONNECT_SECONDS = 2
"""How long a server may take to greet."""
PING_SECONDS = 10
"""How often the client asks whether the server lives. Not oftener: the answer comes behind all that is on its way, and
that may be tens of megabytes of records; whoever has a connection watches `received` for himself."""
CLOSE_SECONDS = 1.0
"""How long a connection may take to end in order."""
LEAVE_SECONDS, LEFT_SECONDS = 0.5, 5.0
"""How long a connection that another one follows is used by whoever has it in hand, and how long it waits for answers
after that."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The header of a compare-and-set: the message is stored only if this is the sequence of its subject's last one."""

STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
WRONG_LAST_SEQUENCE = 10071
NO_JETSTREAM = (10039, 10076)
"""Numbers of errors, from the server's `errors.json`."""

Receive = Callable[[Msg], Awaitable[None]]

log = structlog.get_logger("skep.synchronizer")


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the server's API shows it."""

    subject: str
    seq: int
    data: bytes = b""


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server did not do it."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream holds."""

    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an account may store; -1 is without a limit."""

    max_memory: int = -1


class JetStreamAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of JetStream's answers that are read here."""

    error: ApiError | None = None
    seq: int = 0
    """Of an acknowledged message: where it was stored."""
    message: StoredMessage | None = None
    state: StreamState | None = None
    streams: list[str] | int | None = None
    """Their names, or how many there are, whichever was asked for."""
    name: str = ""
    """Of a consumer."""
    num_pending: int = 0
    """Of a consumer: messages that it will deliver."""
    limits: Limits | None = None

    def refused_for(self, *numbers: int) -> bool:
        """Whether it is an error with one of these numbers."""
        return self.error is not None and self.error.err_code in numbers


NO_RESPONDERS = -1
"""Our own number for what nobody takes: a message to a stream that is gone, a call where there is no JetStream."""
_NOBODY = JetStreamAnswer(
    error=ApiError(code=503, err_code=NO_RESPONDERS, description="no server answers on this subject")
)

_answers = json_decoder(JetStreamAnswer)


class NatsServers:
    """Where the servers are, and by what they and we are known to each other."""

    def __init__(self, url: str, security: NatsSecurity) -> None:
        self.urls = url.split(",")
        self._security = security

    def options(self) -> dict[str, Any]:
        """Return the client's options; raises Misconfigured when a file cannot be used."""
        return self._security.options("synchronizer", self.urls)

    @property
    def sign_in_version(self) -> tuple[tuple[int, int], ...]:
        """The version of the files with the sign-in. It changes when one is replaced."""
        return self._security.sign_in_version


class NatsLink:
    """One connection. `broken` is called once, when it ends other than by `close`."""

    def __init__(self, client: Client, broken: Callable[[], None], answer_seconds: float) -> None:
        """Wrap a connected client; `Link.connect` is the way to get one."""
        self._answer_seconds = answer_seconds
        self._client = client
        self._broken = broken
        self._inbox = client.new_inbox()
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[JetStreamAnswer]] = {}
        self._subscriptions: list[Subscription] = []
        self._closing: asyncio.Task[None] | None = None
        self.alive = True

    @classmethod
    async def connect(cls, server: NatsServers, broken: Callable[[], None], *, answer_seconds: float) -> NatsLink:
        """Connect. `answer_seconds`: how long `api` waits.

        Raises Unreachable when no server greets in time, Misconfigured when a file cannot be used or a server that has
        to speak TLS does not.
        """
        options = server.options()
        client = Client()

        async def on_closed() -> None:
            link.drop()

        async def on_error(error: Exception) -> None:
            log.debug("nats", error=repr(error))
            if client.is_connected and isinstance(error, OSError | UnexpectedEOF):
                link.drop()  # the client will say so itself only when it has got rid of what it has not sent

        link = cls(client, broken, answer_seconds)
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                await client.connect(
                    server.urls,
                    name="skep synchronizer",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    # No limit: at its limit the client waits for the server for ever, and swallows a cancellation.
                    # How much is in flight is bounded by who writes.
                    pending_size=0,
                    closed_cb=on_closed,
                    error_cb=on_error,
                    skip_subject_validation=True,
                    **options,
                )
                # The library goes on in plain text where the server offers no TLS, and says so nowhere else.
                if "tls" in options and not client._server_info.get("tls_required"):
                    raise Misconfigured("synchronizer.url: the NATS server does not speak TLS")
                if client._reading_task is not None:
                    client._reading_task.add_done_callback(link._take_end)
                await link.subscribe(f"{link._inbox}.*", link._take_answer)
        except (OSError, TimeoutError, NatsError) as error:
            await link.close()
            raise Unreachable(f"synchronizer: NATS does not answer: {str(error) or type(error).__name__}") from error
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def max_payload(self) -> int:
        """Largest message that the server takes, in bytes."""
        return int(self._client.max_payload)

    @property
    def received(self) -> int:
        """How many messages came in: where this grows, the server lives."""
        return int(self._client.stats["in_msgs"])

    def new_inbox(self) -> str:
        """Return a subject that is nobody else's."""
        return str(self._client.new_inbox())

    async def subscribe(self, subject: str, receive: Receive) -> Subscription:
        """Have messages of a subject received one after the other; raises Unreachable."""
        try:
            # No limit: what is not read yet would be thrown away. Consumers are held back by flow control.
            subscription = await self._client.subscribe(
                subject, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except NatsError as error:
            raise self._unreachable() from error
        self._subscriptions.append(subscription)
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Receive no more of it."""
        with contextlib.suppress(ValueError):
            self._subscriptions.remove(subscription)
        with contextlib.suppress(NatsError):  # the connection is closed: nothing is received any more
            await subscription.unsubscribe()

    async def send(
        self, subject: str, payload: bytes = b"", *, expected: int | None = None
    ) -> asyncio.Future[JetStreamAnswer]:
        """Ask, and return what the answer will be; with `expected` as a compare-and-set.

        The future raises Unreachable when the connection ends first; how long to wait is the caller's decision.
        """
        if not self.alive:
            raise self._unreachable()
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[JetStreamAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        headers = None if expected is None else {EXPECTED: str(expected)}
        try:
            await self._client.publish(subject, payload, reply=f"{self._inbox}.{number}", headers=headers)
        except NatsError as error:
            answer.cancel()
            raise self._unreachable() from error
        return answer

    async def tell(self, subject: str) -> None:
        """Send an empty message that nobody answers: a consumer's flow control."""
        with contextlib.suppress(NatsError):  # the connection is closed, and the consumer with it
            await self._client.publish(subject)

    async def api(self, call: str, **request: Any) -> JetStreamAnswer:
        """Ask JetStream's API, and wait for the answer."""
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await (await self.send(f"$JS.API.{call}", msgspec.json.encode(request) if request else b""))
        except TimeoutError as error:
            raise Unreachable(f"synchronizer: NATS did not answer within {self._answer_seconds:g} s") from error

    async def last_of(self, stream: str, subject: str) -> JetStreamAnswer:
        """Return the last message of a subject, from the stream's leader: never an older one than was acknowledged."""
        return await self.api(f"STREAM.MSG.GET.{stream}", last_by_subj=subject)

    def check(self) -> None:
        """Drop the connection where the client has given it up without saying so.

        It says so after it has got rid of what it has not sent, which a halted server never takes.
        """
        if self._client.is_closed:
            self.drop()

    def drop(self) -> None:
        """Declare the connection over; whoever waits for an answer is told."""
        if not self.alive:
            return
        self._end()
        self._broken()

    async def close(self) -> None:
        """Disconnect."""
        self._end()
        if self._closing is not None:
            await asyncio.wait((self._closing,))

    async def leave(self) -> None:
        """Disconnect once what was asked is answered: another connection has followed."""
        await asyncio.sleep(LEAVE_SECONDS)
        if self._waiting:
            await asyncio.wait(self._waiting.values(), timeout=LEFT_SECONDS)
        await self.close()

    def _end(self) -> None:
        self.alive = False
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(self._unreachable())
                answer.exception()  # seen: its asker may have gone already
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._disconnect())

    async def _disconnect(self) -> None:
        closing = asyncio.ensure_future(self._client.close())
        await asyncio.wait((closing,), timeout=CLOSE_SECONDS)
        transport = self._client._transport
        writer = getattr(transport, "_bare_io_writer", None)
        if writer is not None:
            # The client first wants to be rid of what it has not sent, which a halted server never takes.
            writer.transport.abort()
            await asyncio.wait((closing,), timeout=CLOSE_SECONDS)
        if not closing.done():
            closing.cancel()
        with contextlib.suppress(OSError, NatsError, asyncio.CancelledError):
            await closing
        for subscription in self._subscriptions:
            subscription._stop_processing()

    def _take_end(self, reading: asyncio.Task[None]) -> None:
        """Nothing comes in any more, whatever the client thinks of it.

        Where it cannot get rid of what it has not sent, as when the server was killed while much was written, it tells
        nobody that the connection ended.
        """
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.debug("nats", error=repr(error))
        self.drop()

    async def _take_answer(self, message: Msg) -> None:
        answer = self._waiting.get(int(message.subject.rpartition(".")[2]))
        if answer is None or answer.done():
            return
        if message.headers and not message.data:  # status 503: no server answers on this subject
            answer.set_result(_NOBODY)
            return
        try:
            answer.set_result(_answers.decode(message.data))
        except msgspec.DecodeError as error:
            answer.set_exception(Unreachable(f"synchronizer: NATS answered what is no answer: {error}"))

    @staticmethod
    def _unreachable() -> Unreachable:
        return Unreachable("synchronizer: the connection to NATS ended")


def require(answer: JetStreamAnswer, what: str) -> JetStreamAnswer:
    """Return the answer; raises Misconfigured where there is no JetStream, Unreachable for any other error."""
    if answer.error is None:
        return answer
    text = f"synchronizer: NATS: {what}: {answer.error.description} ({answer.error.err_code})"
    raise Misconfigured(text) if answer.refused_for(*NO_JETSTREAM) else Unreachable(text)
