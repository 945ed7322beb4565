"""One connection to NATS that is there as often as it can be: lost, it is made anew, with all its subscriptions.

The client library could reconnect by itself, but gives up for good on some errors of the server (an expired user, a
line too long), keeps what was to be sent before for later, and is silent about how long it will take. So each of its
clients lives as long as one TCP connection, and this module makes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import structlog
from nats import errors as nats_errors

from skep.config.sections import TransportSettings
from skep.config.sign_ins import SignIns
from skep.domain.errors import Misconfigured, Overloaded, SkepError, Unreachable
from skep.transport.nats_client import CLOSE_SECONDS, EndingClient
from skep.transport.nats_options import security, servers, wants_tls

CONNECT_SECONDS = 10.0
"""For trying all servers once."""
HANDSHAKE_SECONDS = 3
"""For one server to answer the connection: three that hang leave time for a fourth."""
PING_SECONDS = 5
"""How often the server is asked whether it is there; two answers that do not come end the connection."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Between two attempts to connect, doubled each time, and shortened at random so that not all come at once."""
SAY_SECONDS = 10.0
"""How often the log says that NATS is still away."""
ANSWER_SECONDS = 5.0
"""For the server to answer that it knows what was sent before; on a busy machine it may be a while."""
GRACE_SECONDS = 0.1
"""How long a message may wait for room to wait in."""
DROP_SECONDS = 0.2
"""For leaving a connection that never came to be: nothing waits to be sent."""
MAX_PENDING_BYTES = 64 * 2**20
"""Bytes that may wait to be sent."""
YIELD_EVERY = 256
"""After so many messages without a pause the task that writes to the socket gets its turn."""
LOOK_SECONDS = 0.5
"""How often we look whether the connection is given up: the client tells it only when it has tried to send the rest."""
LEAVE_SECONDS = 0.5
"""How long a connection that another one follows still takes what is being sent."""
DRAIN_SECONDS = 5.0
"""For what has come over such a connection to be taken."""
CLIENT_BUFFER = 2**40
"""The client never waits for the socket in the middle of a message: what may wait is bounded here."""

log = structlog.get_logger("skep.transport")


class NatsConnection:
    """Keeps one client connected. `on_up` subscribes on each new one, `on_down` hears that one is gone."""

    def __init__(
        self,
        settings: TransportSettings,
        name: str,
        *,
        on_up: Callable[[EndingClient], Awaitable[None]],
        on_down: Callable[[], None],
        on_slow: Callable[[str], None],
    ) -> None:
        """`on_slow` hears the subject on which messages were dropped because this process did not take them."""
        self._settings = settings
        self._name = name
        self._on_up = on_up
        self._on_down = on_down
        self._on_slow = on_slow
        self._up: asyncio.Future[EndingClient] | None = None
        """The client once it is connected; nothing before `open` and after `close`."""
        self._keeper: asyncio.Task[None] | None = None
        self._unsent = 0
        """Messages since nothing waited."""
        self._stuck = False
        """Whether too much waited for too long; until nothing waits."""
        self._trouble = ""
        self.sign_ins = SignIns(lambda: settings.sign_in_version)
        self._leaving: set[asyncio.Task[None]] = set()
        """Connections that others follow, being closed."""
        self.reconnects = 0

    @property
    def client(self) -> EndingClient | None:
        """The client, if it is connected now."""
        up = self._up
        return up.result() if up is not None and up.done() and not up.result().is_closed else None

    async def open(self) -> None:
        """Connect.

        Raises Unreachable when no server answers, Misconfigured when they refuse us or a setting cannot be used.
        """
        client, closed = await self._connect()
        self._up = asyncio.get_running_loop().create_future()
        self._up.set_result(client)
        self._keeper = asyncio.create_task(self._keep(client, closed), name="nats-connection")

    async def close(self) -> None:
        """Send what waits, and disconnect. Who waits for the connection hears Unreachable."""
        up, self._up = self._up, None
        while self._keeper is not None and not self._keeper.done():
            # More than once: the client swallows cancellations in some places.
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=CLOSE_SECONDS)
        if up is not None and up.done():
            await _close(up.result())
        elif up is not None:
            up.set_exception(Unreachable("the transport is closed"))
            up.exception()  # Nobody may be waiting.
        for leaving in self._leaving:
            leaving.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving)
        self._on_down()

    async def wait(self) -> EndingClient:
        """Return the client, as soon as it is connected; raises Unreachable when it never will be."""
        while True:
            up = self._up
            if up is None:
                raise Unreachable("the transport is not open")
            client = up.result() if up.done() else await asyncio.shield(up)
            if not client.is_closed:
                return client
            # It was given up a moment ago, and the keeper has not noticed yet.
            await asyncio.sleep(LOOK_SECONDS / 10)

    async def send(self, client: EndingClient, subject: str, data: bytes, reply: str = "") -> None:
        """Hand a message to the client.

        Raises Overloaded when too much waits to be sent, Unreachable when the connection is gone.
        """
        if self._unsent % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        if self._is_full(client, len(data)) and not await self._has_room(client, len(data)):
            raise Overloaded(f"{self._unsent} messages ({client.pending_data_size} bytes) wait to be sent")
        self._unsent += 1
        try:
            await client.publish(subject, data, reply)
        except (nats_errors.Error, OSError) as error:
            raise Unreachable(f"the connection to NATS ended: {error}") from error

    async def settled(self, client: EndingClient, work: Awaitable[None]) -> None:
        """Wait for something that needs an answer of the server; one that gives none within seconds is left.

        A client that gave up waiting breaks when the answer comes late, so it is not used any more.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await work
        except (nats_errors.Error, OSError, TimeoutError) as error:
            log.warning("NATS did not answer, its connection was closed", error=str(error) or type(error).__name__)
            await _close(client)

    def _is_full(self, client: EndingClient, size: int) -> bool:
        waiting = client.pending_data_size
        if waiting == 0:
            self._unsent, self._stuck = 0, False
        return waiting > 0 and (self._unsent >= self._settings.max_pending or waiting + size > MAX_PENDING_BYTES)

    async def _has_room(self, client: EndingClient, size: int) -> bool:
        """Give the socket a moment: what is too much at once is not yet too much. A server that hangs gets it once."""
        end = asyncio.get_running_loop().time() + GRACE_SECONDS
        while not self._stuck:
            await asyncio.sleep(GRACE_SECONDS / 50)
            if not self._is_full(client, size):
                return True
            self._stuck = asyncio.get_running_loop().time() > end
        return False

    async def _keep(self, client: EndingClient, closed: asyncio.Event) -> None:
        while True:
            await self._end_of(client, closed)
            if not client.is_closed:
                client, closed = await self._follow_sign_in(client, closed)
                continue
            self._up = asyncio.get_running_loop().create_future()
            log.warning("NATS connection lost", error=str(client.last_error or "closed by the server"))
            self._on_down()
            client, closed = await self._connect_again()
            self.reconnects += 1
            log.warning("NATS connection restored", server=_server(client))
            self._up.set_result(client)

    async def _end_of(self, client: EndingClient, closed: asyncio.Event) -> None:
        """Wait until the connection ends, or what it was signed in by has been replaced and is to be tried."""
        while not client.is_closed and not self.sign_ins.is_due:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), LOOK_SECONDS)

    async def _follow_sign_in(self, client: EndingClient, closed: asyncio.Event) -> tuple[EndingClient, asyncio.Event]:
        """Sign in anew beside a connection, and leave that one then: no call is lost. Return which goes on."""
        try:
            fresh, fresh_closed = await self._sign_in()
        except Exception as error:
            self.sign_ins.fail()
            unforeseen = None if isinstance(error, SkepError) else error
            log.warning(
                "NATS refused the new sign-in, the connection was kept",
                error=str(error),
                exc_info=unforeseen,
            )
            return client, closed
        try:
            await self._take_up(fresh)
        except Exception as error:
            unforeseen = None if isinstance(error, SkepError) else error
            log.warning("NATS connection closed", error=str(error), exc_info=unforeseen)
            await _close(client)
            return client, closed
        self._up = asyncio.get_running_loop().create_future()
        self._up.set_result(fresh)
        log.info("NATS connection uses a new sign-in", server=_server(fresh))
        leaving = asyncio.create_task(_leave(client), name="nats-connection-left")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return fresh, fresh_closed

    async def _connect_again(self) -> tuple[EndingClient, asyncio.Event]:
        pause, said = FIRST_PAUSE, asyncio.get_running_loop().time()
        while True:
            try:
                return await self._connect()
            except SkepError as error:
                now = asyncio.get_running_loop().time()
                if now - said >= SAY_SECONDS:
                    said = now
                    log.warning("NATS did not answer", error=str(error))
            except Exception:
                log.exception("NATS connection failed")
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - it spreads, it hides nothing
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connect(self) -> tuple[EndingClient, asyncio.Event]:
        """Return a client with its subscriptions, and what is set when its connection ends."""
        client, closed = await self._sign_in()
        await self._take_up(client)
        return client, closed

    async def _take_up(self, client: EndingClient) -> None:
        """Subscribe on a client, and return once the server knows it. Raises Unreachable; it is closed then."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._on_up(client)
                await client.flush(HANDSHAKE_SECONDS)
        except (nats_errors.Error, OSError, TimeoutError) as error:
            await _close(client, DROP_SECONDS)
            raise self._failure(error) from error
        except BaseException:
            await _close(client, DROP_SECONDS)
            raise

    async def _sign_in(self) -> tuple[EndingClient, asyncio.Event]:
        """Return a client without subscriptions, and what is set when its connection ends."""
        client, closed = EndingClient(), asyncio.Event()

        async def on_closed() -> None:
            closed.set()

        self.sign_ins.begin()
        options = security(self._settings)
        self._trouble = ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(
                    servers(self._settings),
                    name=self._name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=HANDSHAKE_SECONDS,
                    ping_interval=PING_SECONDS,
                    max_outstanding_pings=2,
                    pending_size=CLIENT_BUFFER,
                    skip_subject_validation=True,  # All our subjects are encoded; those of others come from the server.
                    error_cb=self._on_error,
                    closed_cb=on_closed,
                    **options,
                )
                if wants_tls(self._settings) and not client.is_encrypted:
                    raise Misconfigured(f"transport.url: the NATS server {_server(client)} does not speak TLS")
        except (nats_errors.Error, OSError, TimeoutError) as error:
            await _close(client, DROP_SECONDS)
            raise self._failure(error) from error
        except BaseException:
            await _close(client, DROP_SECONDS)
            raise
        self.sign_ins.succeed()
        return client, closed

    def _failure(self, error: Exception) -> SkepError:
        # Of servers that could not be reached at all the client raises no more than that there are none.
        unheard = self._trouble if isinstance(error, nats_errors.NoServersError) else ""
        text = unheard or str(error) or type(error).__name__
        if "authorization" in text.lower() or "authentication" in text.lower():
            return Misconfigured(f"transport: the NATS server refuses our credentials: {text}")
        where = ", ".join(url.rpartition("@")[2].rpartition("/")[2] for url in servers(self._settings))
        return Unreachable(f"no NATS server answers at {where}: {text}")

    async def _on_error(self, error: Exception) -> None:
        """Hear of what the client did not raise: failed attempts to connect, dropped messages, refused subjects."""
        if isinstance(error, nats_errors.SlowConsumerError):
            self._on_slow(error.subject)
            return
        self._trouble = str(error) or type(error).__name__
        if "permissions violation" in self._trouble.lower():
            log.error("NATS refused a subject", error=self._trouble)
        else:
            log.debug("NATS client", error=self._trouble)


async def _leave(client: EndingClient) -> None:
    """Let what is being sent go, take what has come, and disconnect."""
    try:
        await asyncio.sleep(LEAVE_SECONDS)
        if not client.is_closed:
            async with asyncio.timeout(DRAIN_SECONDS):
                await client.drain()
    except (nats_errors.Error, OSError, TimeoutError) as error:
        log.debug("NATS connection that was left dropped", error=str(error) or type(error).__name__)
    finally:
        await _close(client, DROP_SECONDS)


async def _close(client: EndingClient, seconds: float = CLOSE_SECONDS) -> None:
    """Disconnect a client in whatever state it is; what a server does not take in time is lost with it."""
    if client.is_closed:
        return
    with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            await client.close()


def _server(client: EndingClient) -> str:
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url is not None else ""
