"""What every application is told when a request's body breaks off: one error, a client's, never a bug."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skep.domain.errors import BrokenOff
from skep.telemetry.logs import get_logger

log = get_logger(__name__)


class WholeBodies:
    """Stands before an application: it reads whole bodies, or `BrokenOff` is raised where it reads."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        whole = answered = False

        async def receive_whole() -> Message:
            nonlocal whole
            message = await receive()
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
            elif message["type"] == "http.disconnect" and not whole and not answered:
                raise BrokenOff("The request body broke off before its end.")
            return message

        async def send_noting(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._inner(scope, receive_whole, send_noting)
        except BrokenOff as error:
            # An application that reads bodies answers this itself.
            log.info("request broken off", path=scope.get("path"), error=str(error))
