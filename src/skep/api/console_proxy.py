"""The websocket that hands a line of a guest through, serial line or screen, from its host to the user's client.

Before it is accepted: a token that is good, a page that may open it, room for one more. While it lasts: the server is
still where the token says, something is said now and then, and no longer than allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from urllib.parse import unquote, urlsplit

import msgspec
import structlog
from starlette.types import Message, Receive, Scope, Send

from skep.api.console_tokens import ConsoleToken, read_token
from skep.api.handlers.server_lookup import look_up
from skep.api.services import ApiServices
from skep.domain.consoles import CHUNK, KINDS, PATHS
from skep.domain.errors import Forbidden, NotFound, Overloaded, SkepError, TooManyRequests, Unavailable, Unreachable
from skep.domain.ids import ProjectId
from skep.domain.instances import Task
from skep.http import urls
from skep.http.headers import by_name

log = structlog.get_logger("skep.api.consoles")

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 1.0
"""Between two looks whether the server is still there."""
FAREWELL_SECONDS = 2.0
"""In which a client takes the end of its console."""
MOST_USED = 10_000
"""Used tokens that an API process remembers."""
COOKIE = "token"
WELCOME = b"ok\n"
"""What a host says to a secret that is good."""
USUAL_PORTS = {"http": 80, "https": 443}
"""Of pages whose origin names none, and of the API where the page speaks to it."""
GOING_AWAY, NORMAL, POLICY = 1001, 1000, 1008
"""Codes with which a websocket ends (RFC 6455, 7.4)."""


class ConsoleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the consoles of one API process may take; times are seconds."""

    most: int = 100
    of_project: int = 20
    """Those of the servers of one project."""
    idle: float = 600.0
    longest: float = 43200.0
    origins: frozenset[str] = frozenset()
    """Hosts of pages, beside the API's own, that may open consoles."""


class ConsoleProxy:
    """An ASGI application for websockets."""

    def __init__(self, services: ApiServices, limits: ConsoleLimits) -> None:
        self._services = services
        self._limits = limits
        self.open = 0
        """Consoles that are open, or being opened."""
        self._of_projects: Counter[ProjectId] = Counter()
        """Those whose server is known, by its project."""
        self._used: dict[bytes, int] = {}
        """Hashes of the secrets of used tokens, and when these end, in the order of their use."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one websocket."""
        await receive()
        try:
            token = self._admitted(scope)
        except SkepError as error:
            await self._refuse(scope, send, error)
            return
        self.open += 1
        try:
            with self._counted(await self._check(token)):
                await self._hand_through(token, scope, receive, send)
        except SkepError as error:
            if isinstance(error, Unavailable):
                # It may be tried again.
                self._used.pop(_key(token), None)
            await self._refuse(scope, send, error)
        finally:
            self.open -= 1

    @contextlib.contextmanager
    def _counted(self, project: ProjectId) -> Iterator[None]:
        """Count a console for the project of its server while it is open. Raises Overloaded."""
        if self._of_projects[project] >= self._limits.of_project:
            raise Overloaded("Too many consoles of the project are open.")
        self._of_projects[project] += 1
        try:
            yield
        finally:
            self._of_projects[project] -= 1
            if not self._of_projects[project]:
                del self._of_projects[project]

    async def _refuse(self, scope: Scope, send: Send, error: SkepError) -> None:
        """Close a websocket that was not accepted; it counts for its client's address."""
        try:
            self._services.limits.count_address(scope)
        except TooManyRequests as limited:
            error = limited
        log.info("console refused", client=_client(scope), error=str(error))
        await send({"type": "websocket.close", "code": POLICY, "reason": str(error)[:120]})

    def _admitted(self, scope: Scope) -> ConsoleToken:
        if scope["path"] not in PATHS.values():
            raise NotFound("There is no console at this path.")
        headers = by_name(scope["headers"])
        self._check_origin(headers)
        said = urls.query(scope).get("token", [""])[-1] or _cookie(headers.get(b"cookie", b""))
        token = read_token(self._services.unseal, said, self._services.clock.now())
        if token is None or PATHS[KINDS[token.kind][0]] != scope["path"]:
            raise Forbidden("The token is none of this path, or over.")
        if self.open >= self._limits.most:
            raise Overloaded("Too many consoles are open.")
        self._use(token)
        return token

    def _use(self, token: ConsoleToken) -> None:
        """Note that a token is used. Raises Forbidden when it was used here before; of other processes its host knows.

        What is noted is forgotten with the end of the token, and the oldest where there is too much of it.
        """
        now = self._services.clock.now()
        key = _key(token)
        if key in self._used:
            raise Forbidden("The token was used before.")
        while self._used and (len(self._used) >= MOST_USED or next(iter(self._used.values())) <= now):
            del self._used[next(iter(self._used))]
        self._used[key] = token.until

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse scripts of pages that are not the API's own; other clients name no page."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        try:
            page = urlsplit(origin.decode("latin-1"))
            own = urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}")
            usual = USUAL_PORTS.get(page.scheme)
            is_own = (page.hostname, page.port or usual) == (own.hostname, own.port or usual)
        except ValueError as error:
            raise Forbidden("Origin, Host: expected addresses.") from error
        if page.hostname is None or not (is_own or page.hostname in self._limits.origins):
            raise Forbidden("Pages of this origin may not open consoles.")

    async def _check(self, token: ConsoleToken) -> ProjectId:
        """Return the project of the server.

        Raises NotFound unless it is still where the token says, Unavailable where that cannot be read.
        """
        found = await look_up(self._services, token.instance)
        if (
            found is None
            or found.cell != token.cell
            or (found.instance.host, found.instance.attempt) != (token.host, token.attempt)
            or found.instance.task is Task.DELETING
        ):
            raise NotFound("The server is not there any more.")
        return found.mapping.project_id

    async def _hand_through(self, token: ConsoleToken, scope: Scope, receive: Receive, send: Send) -> None:
        reader, writer = await _connected(token)
        binary = "binary" in scope.get("subprotocols", ())
        await send({"type": "websocket.accept", "subprotocol": "binary" if binary else None})
        log.info("console begun", client=_client(scope), instance=token.instance, host=token.host)
        line = _Line(reader, writer, receive, send)
        ended = "error"
        try:
            ended = await line.carry(self._limits, lambda: self._check(token))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            log.info("console ended", client=_client(scope), instance=token.instance, because=ended)


class _Line:
    """One console while it is open."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receive: Receive, send: Send
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._receive = receive
        self._send = send
        self._heard = time.monotonic()

    async def carry(self, limits: ConsoleLimits, check: Callable[[], object]) -> str:
        """Carry bytes both ways until one side ends or may not go on; return why."""
        begun = time.monotonic()

        async def watch() -> str:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                now = time.monotonic()
                if now - self._heard > limits.idle:
                    return "nothing was said"
                if now - begun > limits.longest:
                    return "it was open long enough"
                try:
                    await check()  # type: ignore[misc]  # it is a coroutine
                except Unavailable:
                    continue  # Who is cut off because a database is slow cannot help it.
                except SkepError:
                    return "the server is not there any more"

        tasks = [asyncio.create_task(one()) for one in (self._to_host, self._to_user, watch)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        except OSError:
            return "the connection to the host broke"
        finally:
            # The line of the host is free at once, whatever the client does.
            self._writer.close()
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Exception):
                # The client may be gone already, or read nothing: the port cuts it off then.
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._send({"type": "websocket.close", "code": NORMAL})

    async def _to_host(self) -> str:
        while True:
            message: Message = await self._receive()
            if message["type"] != "websocket.receive":
                return "the client went away"
            data = message.get("bytes")
            self._heard = time.monotonic()
            self._writer.write(message["text"].encode() if data is None else data)
            await self._writer.drain()

    async def _to_user(self) -> str:
        while data := await self._reader.read(CHUNK):
            # What the client does not take was not said.
            await self._send({"type": "websocket.send", "bytes": data})
            self._heard = time.monotonic()
        return "the guest ended it"


async def _connected(token: ConsoleToken) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a line of the guest. Raises Unreachable, Forbidden when the token was used before."""
    door = token.door
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(door.address, door.port, limit=CHUNK)
            writer.write(door.secret.encode() + b"\n")
            await writer.drain()
            said = await reader.readline()
        if said != WELCOME:
            raise Forbidden("The token was used before, or the guest is gone.")
    except BaseException as error:
        if writer is not None:
            writer.close()
        if isinstance(error, OSError | TimeoutError | ValueError | OverflowError):
            # A name that is none, and a line without an end, are errors of values.
            raise Unreachable(f"The console of host {token.host} cannot be reached.") from error
        raise
    return reader, writer


def _key(token: ConsoleToken) -> bytes:
    return hashlib.sha256(token.door.secret.encode()).digest()


def _cookie(header: bytes) -> str:
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else unquote(found.value)


def _client(scope: Scope) -> str | None:
    return scope["client"][0] if scope.get("client") else None
