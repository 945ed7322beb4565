"""The NATS library's client with an end that always comes, and a `flush` that means it.

What was sent before a `flush` has arrived when it returns: the library (nats-py 2.16) asks the server before it has
written what waits, so that the answer says nothing of that.

The library sends what is left before it closes. Where that fails, or the server takes nothing any more, its closing
stops half-way: nobody is told, the tasks of its subscriptions stay, and the error is nobody's. The private names that
are used here are the price of both; all of them stand in this file.
"""

from __future__ import annotations

import asyncio

import structlog
from nats.aio.client import PING_PROTO, Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

CLOSE_SECONDS = 2.0
"""For what was sent before to reach the server."""

_NO_RESPONDERS = "503"
"""Status with which a NATS server answers where nobody listens."""

log = structlog.get_logger("skep.transport")


def nobody_listens(answer: Msg) -> bool:
    """Tell whether an answer is the server's word that nobody takes what was asked."""
    return (answer.headers or {}).get("Status") == _NO_RESPONDERS


class EndingClient(Client):
    """A client of one connection: it ends within seconds, whatever the server does, and tells it."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is: the library goes on in plain text where the server offers no TLS."""
        return bool(self._server_info.get("tls_required"))

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        if self.is_closed:
            await super()._close(status, do_cbs)
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await super()._close(status, do_cbs)
        except (OSError, TimeoutError) as error:
            log.debug("NATS connection dropped", error=str(error) or type(error).__name__)
        finally:
            self._let_go()
        if do_cbs and self._closed_cb is not None:
            await self._closed_cb()

    def _let_go(self) -> None:
        """Do what a closing that did not come to its end left undone; after one that did there is nothing."""
        for subscription in self._subs.values():
            subscription._stop_processing()
        self._subs.clear()
        connection = self._transport
        if isinstance(connection, TcpTransport) and connection._io_writer is not None:
            connection._io_writer.transport.abort()
