"""Skep's own credentials towards other OpenStack services: one token, renewed in time, shared by all callers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec
import structlog

from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Forbidden, Unavailable
from skep.neighbours.answers import IDENTITY, IMAGES, PLAIN, ask, decode, failed, nonsense, send, time_of, unreachable
from skep.neighbours.circuits import Asking, CircuitOutcome, Circuits, NotAsked, never_away
from skep.neighbours.connections import ServiceAnswer

log = structlog.get_logger("skep.neighbours")

RENEW_BEFORE = 60 * SECOND
"""A token that has less than this left is renewed before it is used."""

FIRST_PAUSE = 0.1
"""Seconds before the second try; each further one waits twice as long, less a random share."""


class CredentialsRefused(Unavailable):
    """The identity service does not let Skep's own user sign in."""


class ServiceCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """How Skep signs in, with the names of Keystone's clients."""

    auth_url: str
    """Address of the identity service, with or without `/v3`."""
    username: str
    password: str
    project_name: str = "service"
    project_id: str = ""
    """Of the project in whose name Skep asks, instead of its name and domain."""
    user_domain_name: str = "Default"
    project_domain_name: str = "Default"
    region_name: str = ""
    """Region whose endpoints are used; empty: any."""
    timeout: float = 10.0
    """Seconds after which a try of a request counts as unanswered."""
    retries: int = 2
    """Further tries of a request that had no answer, or one that says to come again."""

    def __repr__(self) -> str:
        """Leaves the password out."""
        return f"ServiceCredentials(auth_url={self.auth_url!r}, username={self.username!r})"

    @property
    def v3(self) -> str:
        """Address of the v3 API without a slash at its end."""
        base = self.auth_url.rstrip("/")
        return base if base.endswith("/v3") else f"{base}/v3"


class _Project(msgspec.Struct):
    id: str


class _Endpoint(msgspec.Struct):
    interface: str
    url: str
    region_id: str | None = None


class _Service(msgspec.Struct):
    type: str
    endpoints: list[_Endpoint] = []


class _Token(msgspec.Struct):
    expires_at: str
    project: _Project | None = None
    catalog: list[_Service] = []


class _TokenBody(msgspec.Struct):
    token: _Token


AWAY = frozenset({502, 503, 504})
"""Statuses by which a service says, or a proxy for it, that it cannot answer now."""


StatusAndHeaders = ServiceAnswer | httpx.Response
"""An answer, read to its end or not yet."""


class _Session(msgspec.Struct, frozen=True):
    token: str
    expires_at: int
    catalog: list[_Service]


class ServiceSession:
    """Sends requests with a valid token of Skep's own user."""

    def __init__(
        self,
        credentials: ServiceCredentials,
        client: httpx.AsyncClient,
        clock: Clock,
        circuits: Circuits | None = None,
    ) -> None:
        """`circuits` tell which services are away; None: each request is sent."""
        self.credentials = credentials
        self._client = client
        self._clock = clock
        self._circuits = circuits or never_away()
        self._session: _Session | None = None
        self._signing_in: asyncio.Task[_Session] | None = None

    def of_project(self, project_id: str) -> ServiceSession:
        """Return a session of the same user in another project, where he needs a role."""
        credentials = msgspec.structs.replace(self.credentials, project_id=project_id)
        return ServiceSession(credentials, self._client, self._clock, self._circuits)

    async def sign_in(self) -> None:
        """Get a token unless there is one.

        Raises CredentialsRefused when the identity service refuses the user, Unavailable when it does not answer.
        """
        await self._current()

    async def endpoint(self, service_type: str) -> str:
        """Return the address of a service from the catalogue (internal before public), no slash at its end.

        Raises Unavailable when the catalogue has none.
        """
        session = await self._current()
        found = {
            endpoint.interface: endpoint.url
            for service in session.catalog
            if service.type == service_type
            for endpoint in service.endpoints
            if self.credentials.region_name in ("", endpoint.region_id)
        }
        for interface in ("internal", "public"):
            if interface in found:
                return found[interface].rstrip("/")
        raise Unavailable(f"the identity service's catalogue has no {service_type} service")

    async def get(self, url: str, headers: dict[str, str] | None = None) -> ServiceAnswer:
        """Send a GET with Skep's token; when the token is refused, once more with a new one.

        Raises Unreachable when the service does not answer, Unavailable when it fails or refuses Skep's own user.
        """
        session = await self._current()
        response = await self._send("GET", url, headers={**(headers or {}), "X-Auth-Token": session.token})
        if response.status_code == 401:
            self._forget(session)
            session = await self._current()
            response = await self._send("GET", url, headers={**(headers or {}), "X-Auth-Token": session.token})
        if response.status_code == 401:
            raise self._refused(url)
        return response

    @contextlib.asynccontextmanager
    async def stream(self, url: str, headers: Mapping[str, str] = PLAIN) -> AsyncIterator[httpx.Response]:
        """Send a GET with Skep's token, whose body is read while the context lasts. What broke off is not tried again.

        Raises Unreachable when the service does not answer or breaks off, Unavailable when it fails or refuses Skep's
        own user.
        """
        session = await self._current()
        headers = {**headers, "X-Auth-Token": session.token}
        service, seconds = self._service(url), self.credentials.timeout
        with self._circuits.asking(service, f"GET {url}") as asking:
            try:
                async with self._client.stream("GET", url, headers=headers, timeout=seconds) as response:
                    _tell(asking, response)
                    self._check(response, session, url)
                    yield response
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise unreachable(service, url, error) from error

    async def put(self, url: str, pieces: AsyncIterator[bytes]) -> ServiceAnswer:
        """Send bytes piece by piece with Skep's token, one time: what was taken from `pieces` is gone.

        Raises as `stream` does, and whatever `pieces` raises.
        """
        session = await self._current()
        headers = {"X-Auth-Token": session.token, "Content-Type": "application/octet-stream"}
        service, seconds = self._service(url), self.credentials.timeout
        with self._circuits.asking(service, f"PUT {url}") as asking:
            response = await send(service, self._client, "PUT", url, seconds=seconds, headers=headers, content=pieces)
            _tell(asking, response)
        self._check(response, session, url)
        return response

    async def post(self, url: str, body: Any) -> ServiceAnswer:
        """Send JSON with Skep's token, one time: what it makes may be there although no answer came.

        Raises as `stream` does.
        """
        session = await self._current()
        response = await self._once("POST", url, {"X-Auth-Token": session.token}, body)
        self._check(response, session, url)
        return response

    async def as_user(
        self, method: str, url: str, token: str, headers: dict[str, str], body: Any = None, *, service: str = ""
    ) -> ServiceAnswer:
        """Send a request with a user's token; only a GET is tried again. The answer may be a refusal.

        `service` is what errors call whom is asked. Raises Unreachable when the service does not answer, Unavailable
        when it fails.
        """
        given = {**headers, "X-Auth-Token": token}
        if method == "GET":
            return await self._send(method, url, headers=given, service=service)
        return await self._try(method, url, given, body, service)

    async def as_skep(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: Any = None,
        *,
        service: str,
        as_service: bool = False,
    ) -> ServiceAnswer:
        """Send a request with Skep's token; when the token is refused, once more with a new one: nothing was done.

        `as_service`: show by the same token that another service asks, which may do what users may not. Raises as
        `as_user`, Unavailable too when the service refuses Skep's own user.
        """
        for _ in range(2):
            session = await self._current()
            given = {**headers, "X-Service-Token": session.token} if as_service else headers
            response = await self.as_user(method, url, session.token, given, body, service=service)
            if response.status_code != 401:
                return response
            self._forget(session)
        raise self._refused(url, service)

    async def delete(self, url: str) -> bool:
        """Send a DELETE with Skep's token; return whether there was something to delete.

        Raises as `get`, Forbidden when the service does not let Skep delete it, Unavailable for any other refusal.
        """
        session = await self._current()
        response = await self._send("DELETE", url, headers={"X-Auth-Token": session.token})
        if response.status_code == 403:
            raise Forbidden(f"{self._service(url)} does not let Skep's own user delete it")
        if response.status_code not in (204, 404):
            self._check(response, session, url)
            raise failed(self._service(url), url, response.status_code)
        return response.status_code == 204

    def _service(self, url: str) -> str:
        return IDENTITY if url.startswith(f"{self.credentials.v3}/") else IMAGES

    def _refused(self, url: str, service: str = "") -> Unavailable:
        service = service or self._service(url)
        log.error("neighbour refuses Skep's own user", service=service, url=url, user=self.credentials.username)
        return Unavailable(f"{service} refuses the credentials of Skep's own user")

    def _check(self, response: StatusAndHeaders, session: _Session, url: str) -> None:
        """Raise Unavailable for an answer that is none. A token that is refused is not used again."""
        if response.status_code == 401:
            self._forget(session)
            raise self._refused(url)
        if _fails(response):
            raise failed(self._service(url), url, response.status_code)

    async def _current(self) -> _Session:
        session = self._session
        if session is not None and session.expires_at - self._clock.now() >= RENEW_BEFORE:
            return session
        if self._signing_in is None:
            # Requests that come meanwhile wait for the same answer: none of them is the next to wait for its own.
            self._signing_in = asyncio.create_task(self._sign_in())
            self._signing_in.add_done_callback(self._signed_in)
        return await asyncio.shield(self._signing_in)

    def _signed_in(self, task: asyncio.Task[_Session]) -> None:
        self._signing_in = None
        # The error is for those who wait; all of them may have gone away meanwhile.
        if not task.cancelled() and task.exception() is None:
            self._session = task.result()

    def _forget(self, session: _Session) -> None:
        if self._session is session:
            self._session = None

    async def _sign_in(self) -> _Session:
        url = f"{self.credentials.v3}/auth/tokens"
        response = await self._send("POST", url, json=_sign_in_body(self.credentials))
        if response.status_code != 201:
            log.error(
                "sign-in at the identity service failed",
                url=url,
                user=self.credentials.username,
                status=response.status_code,
            )
            message = f"{IDENTITY} does not let Skep's own user sign in ({response.status_code})"
            raise CredentialsRefused(message) if response.status_code == 401 else Unavailable(message)
        token = decode(IDENTITY, response, _TokenBody).token
        subject = response.headers.get("X-Subject-Token", "")
        if not (subject and subject.isascii() and subject.isprintable()):
            raise nonsense(IDENTITY, "there is no token")
        return _Session(subject, time_of(IDENTITY, token.expires_at), token.catalog)

    async def _send(
        self, method: str, url: str, *, headers: dict[str, str] | None = None, json: Any = None, service: str = ""
    ) -> ServiceAnswer:
        """Send a request that may be repeated; try again when there is no good answer."""
        pause = FIRST_PAUSE
        for left in range(self.credentials.retries, -1, -1):
            try:
                return await self._try(method, url, headers, json, service)
            except Unavailable as error:
                if not left or isinstance(error, NotAsked):
                    raise
                log.info("neighbour asked again", url=url, error=str(error), tries_left=left)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads tries, guards nothing
            pause *= 2
        raise AssertionError("the last try returned or raised")

    async def _try(
        self, method: str, url: str, headers: dict[str, str] | None, json: Any, service: str = ""
    ) -> ServiceAnswer:
        response = await self._once(method, url, headers, json, service)
        if _fails(response):
            raise failed(service or self._service(url), url, response.status_code)
        return response

    async def _once(
        self, method: str, url: str, headers: dict[str, str] | None, json: Any, service: str = ""
    ) -> ServiceAnswer:
        asked, seconds = service or self._service(url), self.credentials.timeout
        with self._circuits.asking(asked, f"{method} {url}") as asking:
            response = await ask(asked, self._client, method, url, seconds=seconds, headers=headers, said=json)
            _tell(asking, response)
        return response


def _tell(asking: Asking, response: StatusAndHeaders) -> None:
    asking.tell(outcome_of(response))


def outcome_of(response: StatusAndHeaders) -> CircuitOutcome:
    """Return what a response says of its service. A refusal is an answer; a page for people is none.

    Nor is what a proxy says for a service that is away (502, 503, 504). Another error may concern the one thing that
    was asked for, and says nothing. OpenStack's services call the type of an answer without a body `text/html`, too.
    """
    if response.status_code >= 500:
        return CircuitOutcome.FAILED if response.status_code in AWAY else CircuitOutcome.UNKNOWN
    empty = response.status_code == 204 or response.headers.get("Content-Length") == "0"
    is_page = response.headers.get("Content-Type", "").startswith("text/html")
    page = is_page and not empty and response.status_code < 400
    return CircuitOutcome.FAILED if page else CircuitOutcome.ANSWERED


def _fails(response: StatusAndHeaders) -> bool:
    return response.status_code >= 500 or response.status_code == 429


def _sign_in_body(credentials: ServiceCredentials) -> dict[str, Any]:
    user = {
        "name": credentials.username,
        "password": credentials.password,
        "domain": {"name": credentials.user_domain_name},
    }
    project: dict[str, Any] = {"name": credentials.project_name, "domain": {"name": credentials.project_domain_name}}
    if credentials.project_id:
        project = {"id": credentials.project_id}
    return {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": project},
        }
    }
