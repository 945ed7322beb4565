"""Messages over NATS core: a subject for each address, a queue group for those who serve it, one inbox for answers.

At most once (see `base.py`): nothing is kept, and nothing is sent twice but calls of schedulers that may be
answered twice (`repeats.py`). A call to an address that nobody serves is answered by the NATS server at once ("no
responders"). What was asked before a connection was lost ends with Unreachable as soon as the loss is noticed; calls
made while it is away wait for it until their deadline, casts are dropped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from skep.config.sections import TransportSettings
from skep.domain.context import RequestContext
from skep.domain.errors import Overloaded, Unreachable
from skep.domain.ids import new_uuid
from skep.messages.base import Call, Cast
from skep.transport import codec
from skep.transport.base import Address, CellHandlers, Handlers
from skep.transport.endpoint import Endpoint, too_large
from skep.transport.nats_client import EndingClient, nobody_listens
from skep.transport.nats_connection import NatsConnection
from skep.transport.refusals import Kind, OnRefused, RefusedMessages
from skep.transport.repeats import AGAIN_AFTER, Repeat
from skep.transport.subjects import cell_in, subject_of, subject_of_cells

ReplyT = TypeVar("ReplyT")

QUEUE = "skep"
"""Queue group of those who serve an address: each message goes to one of them."""
UNLIMITED = 2**62

log = structlog.get_logger("skep.transport")


class NatsTransport:
    """A transport over NATS. Between `open` and `close` it keeps itself connected."""

    def __init__(self, settings: TransportSettings, *, name: str = "skep", on_refused: OnRefused | None = None) -> None:
        """`name` is what NATS' monitoring calls this process."""
        self._settings = settings
        self.refusals = RefusedMessages(on_refused)
        self._connection = NatsConnection(
            settings, name, on_up=self._subscribe_all, on_down=self._lose_answers, on_slow=self._note_slow
        )
        self._served: set[_Served] = set()
        self._latest: EndingClient | None = None
        """The client that addresses are subscribed on, connected or about to be."""
        self._inbox = f"{settings.inbox}.{new_uuid().replace('-', '')}"
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        """By number: calls that were sent and not answered yet."""
        self._calls = 0

    @property
    def proves_senders(self) -> bool:
        """Anybody who reaches the server may say to be anybody."""
        return False

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection.client is not None

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew."""
        return self._connection.reconnects

    async def open(self) -> None:
        """Connect.

        Raises Unreachable when no server answers, Misconfigured when they refuse us or a setting cannot be used.
        """
        await self._connection.open()

    async def close(self) -> None:
        """Disconnect; calls that wait end with Unreachable. Served addresses are closed by whoever serves them."""
        await self._connection.close()

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint; without a connection, or when too much waits to be sent, it is lost and counted.

        Raises TooLarge when the server would not take it.
        """
        client = self._connection.client
        if client is None:
            self.refusals.note("cast", "away", address)
            return
        data = self._encoded(client, message, context, "cast")
        try:
            await self._connection.send(client, subject_of(self._settings.prefix, address), data)
        except Overloaded:
            self.refusals.note("cast", "overloaded", address)
        except Unreachable:
            self.refusals.note("cast", "away", address)

    async def deliver(self, address: Address, data: bytes) -> None:
        """Send an encoded message. The answer goes nowhere."""
        client = await self._connection.wait()
        await self._connection.send(client, subject_of(self._settings.prefix, address), data)

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Ask one server of `address`; see `Transport.call`.

        Raises Overloaded when too many calls wait or too much is to be sent, TooLarge when the message is.
        """
        name = message.wire_name
        if self._calls >= self._settings.max_pending:
            self.refusals.note("call", "overloaded", address)
            raise Overloaded(f"{self._calls} calls wait for answers")
        self._calls += 1
        try:
            async with asyncio.timeout(timeout):
                client = self._connection.client or await self._connection.wait()
                data = self._encoded(client, message, context, "call")
                answer = await self._ask(client, address, data, AGAIN_AFTER.get(type(message)))
        except TimeoutError:
            away = "" if self.connected else ": there is no connection to NATS"
            raise Unreachable(f"{address} did not answer {name} in {timeout:g} s{away}") from None
        except Unreachable as error:
            raise Unreachable(f"{address} did not answer {name}: {error}") from None
        except Overloaded:
            self.refusals.note("call", "overloaded", address)
            raise
        finally:
            self._calls -= 1
        if nobody_listens(answer):
            raise Unreachable(f"no process serves {address}")
        reply: ReplyT = codec.decode_reply(answer.data, message.reply_type)
        return reply

    async def serve(self, address: Address, handlers: Handlers) -> _Served:
        """Take messages for `address`, now and after each loss of the connection, until the subscription is closed."""
        return await self._serve(address, handlers, subject_of(self._settings.prefix, address))

    async def serve_cells(self, role: Address, handlers: CellHandlers) -> _Served:
        """Take messages for `cell.CELL.ROLE` of every cell, as `serve` does."""
        subject = subject_of_cells(self._settings.prefix, role)
        return await self._serve(Address(f"cell.*.{role}"), handlers, subject, of_cells=True)

    async def _serve(
        self, address: Address, handlers: Handlers | CellHandlers, subject: str, *, of_cells: bool = False
    ) -> _Served:
        endpoint = Endpoint(
            address, handlers, self.refusals, max_under_way=self._settings.max_under_way, largest=self._largest
        )
        served = _Served(self, endpoint, subject, of_cells=of_cells)
        self._served.add(served)
        client = self._latest
        if client is not None and not client.is_closed:
            await self._connection.settled(client, served.begin(client))
        return served

    # --- what the parts of this module ask of it ----------------------------------------------------

    async def answer(self, inbox: str, address: Address, data: bytes) -> None:
        """Send the answer of a call; when that cannot be, the caller's deadline tells it."""
        client = self._connection.client
        try:
            if client is None:
                raise Unreachable("there is no connection to NATS")
            await self._connection.send(client, inbox, data)
        except Overloaded:
            self.refusals.note("answer", "overloaded", address)
        except Unreachable:
            self.refusals.note("answer", "away", address)

    def forget(self, served: _Served) -> None:
        """Subscribe to an address no more."""
        self._served.discard(served)

    async def settled(self, client: EndingClient, work: Awaitable[None]) -> None:
        """Wait for something that needs an answer of the server; see `Connection.settled`."""
        await self._connection.settled(client, work)

    # --- within --------------------------------------------------------------------------------------

    async def _ask(self, client: EndingClient, address: Address, data: bytes, again_after: float | None) -> Msg:
        """Send a call and wait for its answer; of one that is sent again the first answer is taken."""
        number = str(next(self._numbers))
        waiting: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        repeat: Repeat | None = None
        try:
            subject = subject_of(self._settings.prefix, address)
            reply = f"{self._inbox}.{number}"
            await self._connection.send(client, subject, data, reply)
            if again_after is not None:
                repeat = Repeat(partial(self._send_again, client, subject, data, reply), again_after)
            return await waiting
        finally:
            del self._waiting[number]
            if repeat is not None:
                repeat.stop()

    async def _send_again(self, first: EndingClient, subject: str, data: bytes, reply: str) -> None:
        """Send over the connection that there is now: another may have followed the first."""
        await self._connection.send(self._connection.client or first, subject, data, reply)

    async def _take_answer(self, answer: Msg) -> None:
        waiting = self._waiting.get(answer.subject.rpartition(".")[2])
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _lose_answers(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable("the connection to NATS was lost"))

    async def _subscribe_all(self, client: EndingClient) -> None:
        self._latest = client
        await client.subscribe(f"{self._inbox}.*", cb=self._take_answer)
        for served in tuple(self._served):
            await served.subscribe(client)

    def _encoded(self, client: EndingClient, message: Any, context: RequestContext | None, kind: Kind) -> bytes:
        data = codec.encode(message, context)
        if len(data) > client.max_payload:
            self.refusals.note(kind, "too_large", message.wire_name)
            raise too_large(message.wire_name, len(data), client.max_payload)
        return data

    def _largest(self) -> int:
        client = self._connection.client
        return client.max_payload if client is not None else UNLIMITED

    def _note_slow(self, subject: str) -> None:
        self.refusals.note("call", "slow_consumer", subject)


class _Served:
    """One address as this process serves it, whatever client it is subscribed on."""

    def __init__(self, transport: NatsTransport, endpoint: Endpoint, subject: str, *, of_cells: bool) -> None:
        self.endpoint = endpoint
        self._transport = transport
        self._subject = subject
        self._of_cells = of_cells
        self._client: EndingClient | None = None
        self._subscription: ClientSubscription | None = None

    async def subscribe(self, client: EndingClient) -> None:
        """Subscribe on a client; a second time on the same one does nothing."""
        if self._client is not client:
            self._client = client
            self._subscription = await client.subscribe(self._subject, queue=QUEUE, cb=self._take)

    async def begin(self, client: EndingClient) -> None:
        """Subscribe, and return once the server knows it."""
        await self.subscribe(client)
        await client.flush()

    async def close(self) -> None:
        """Take no more messages; finish and answer those under way."""
        self._transport.forget(self)
        subscription, self._subscription = self._subscription, None
        if subscription is not None and self._client is not None and not self._client.is_closed:
            leaving = subscription.drain()  # type: ignore[no-untyped-call]  # the library gives it no types
            await self._transport.settled(self._client, leaving)
        await self.endpoint.finish()
        if self._client is not None and not self._client.is_closed:
            await self._transport.settled(self._client, self._client.flush())

    async def _take(self, message: Msg) -> None:
        answer = partial(self._transport.answer, message.reply, self.endpoint.address) if message.reply else None
        refusal = self.endpoint.take(message.data, answer, cell_in(message.subject) if self._of_cells else None)
        if refusal is not None and answer is not None:
            await answer(refusal)
