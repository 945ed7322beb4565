"""Keystone, or any other identity service that speaks its v3 API."""

from __future__ import annotations

import asyncio
import urllib.parse

import httpx
import msgspec

from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Unavailable
from skep.domain.ids import ProjectId, UserId
from skep.neighbours.answers import IDENTITY, decode, failed, nonsense, time_of
from skep.neighbours.circuits import Circuits
from skep.neighbours.identity.access_rules import AccessRule, Use, permits
from skep.neighbours.identity.base import Identity, well_formed
from skep.neighbours.identity.token_cache import TokenCache
from skep.neighbours.service_session import ServiceCredentials, ServiceSession

ACCESS_RULES = {"OpenStack-Identity-Access-Rules": "1.0"}
"""Says that access rules are kept here; without it Keystone knows no token that has some."""


ALLOWED_SECONDS = 300
"""So long after Keystone told whose a token is, what it does not let Skep see is the fault of the token."""


class KeystoneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How Keystone is asked."""

    credentials: ServiceCredentials
    cache_seconds: int = 300
    """How long an answer is trusted before Keystone is asked again (keystonemiddleware's token_cache_time)."""
    change_cache_seconds: int = 15
    """The same limit for a request that changes something. A refused token is remembered for so long, too."""
    cache_size: int = 10_000


class _Named(msgspec.Struct):
    name: str
    id: str = ""


class _Owner(msgspec.Struct):
    id: str
    name: str
    domain: _Named


class _ApplicationCredential(msgspec.Struct):
    access_rules: list[AccessRule] | None = None


class _Token(msgspec.Struct):
    expires_at: str
    user: _Owner
    project: _Owner | None = None
    domain: _Named | None = None
    roles: list[_Named] = []
    system: dict[str, bool] = {}
    application_credential: _ApplicationCredential | None = None


class _TokenBody(msgspec.Struct):
    token: _Token


class _Project(msgspec.Struct):
    id: str


class _ProjectBody(msgspec.Struct):
    project: _Project


class _Known(msgspec.Struct, frozen=True):
    """What Keystone said of a token."""

    identity: Identity | None
    """None: it knows no such token."""
    access_rules: tuple[AccessRule, ...] | None
    """None: the token is good for every request."""
    asked_at: int


class KeystoneIdentity:
    """Validates tokens with Skep's own user, which needs the role `service` or `admin`. Answers are cached."""

    def __init__(
        self,
        settings: KeystoneSettings,
        client: httpx.AsyncClient,
        clock: Clock,
        circuits: Circuits | None = None,
    ) -> None:
        self._settings = settings
        self._v3 = settings.credentials.v3
        self.session = ServiceSession(settings.credentials, client, clock, circuits)
        """What requests to Keystone, and to services of its catalogue, are sent with."""
        self._clock = clock
        self._cache: TokenCache[_Known] = TokenCache(settings.cache_size)
        self._refused: TokenCache[_Known] = TokenCache(settings.cache_size)
        """Apart, so that made-up tokens push no valid one out."""
        self._asking: dict[str, asyncio.Task[_Known]] = {}
        self._allowed_at: int | None = None
        """When Keystone last told whose a token is."""

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:
        """Return whom the token speaks for, from the cache while that is fresh."""
        if not well_formed(token):
            return None
        known = self._remembered(token, use)
        if chained and (known is None or known.identity is None):
            # What a service shows is rare, and may have expired: it is not remembered.
            return (await self._ask(token, chained=True)).identity
        if known is None:
            known = await self._ask_once(token)
        if chained:
            return known.identity
        rules = known.access_rules
        allowed = rules is None or (use is not None and permits(rules, use))
        return known.identity if allowed else None

    def remembers(self, token: str) -> bool:
        """Tell whether Keystone has answered for this token lately, or is not asked for it."""
        return not well_formed(token) or self._remembered(token, None) is not None

    def _remembered(self, token: str, use: Use | None) -> _Known | None:
        now = self._clock.now()
        known = self._cache.get(token, now) or self._refused.get(token, now)
        if known is None or use is None or not use.changes:
            return known
        return known if now - known.asked_at < self._settings.change_cache_seconds * SECOND else None

    async def _ask_once(self, token: str) -> _Known:
        """Ask Keystone; requests that come with one token meanwhile wait for one answer."""
        asking = self._asking.get(token)
        if asking is None:
            asking = asyncio.create_task(self._ask(token))
            self._asking[token] = asking
            asking.add_done_callback(lambda task: self._answered(token, task))
        # A client that goes away takes the answer from nobody else.
        return await asyncio.shield(asking)

    def _answered(self, token: str, task: asyncio.Task[_Known]) -> None:
        del self._asking[token]
        if not task.cancelled():
            task.exception()  # every waiting request may have gone away meanwhile

    async def _ask(self, token: str, *, chained: bool = False) -> _Known:
        asked_at = self._clock.now()
        generation, refused_generation = self._cache.generation, self._refused.generation
        headers = {**ACCESS_RULES, "X-Subject-Token": token}
        query = "nocatalog&allow_expired=1" if chained else "nocatalog"
        response = await self.session.get(f"{self._v3}/auth/tokens?{query}", headers)
        # Of a trust whose giver has lost the roles Keystone says 403, as of all tokens to a user that may see none.
        forbidden = response.status_code == 403 and self._was_allowed(asked_at)
        if response.status_code not in (200, 404) and not forbidden:
            raise Unavailable(f"{IDENTITY} answered {response.status_code} to the validation of a token")
        body = decode(IDENTITY, response, _TokenBody).token if response.status_code == 200 else None
        if body is not None:
            self._allowed_at = asked_at
        if chained:
            return _Known(_identity(body) if body is not None else None, None, asked_at)
        if body is None or time_of(IDENTITY, body.expires_at) <= asked_at:
            refused = _Known(None, None, asked_at)
            until = asked_at + self._settings.change_cache_seconds * SECOND
            self._refused.put(token, refused, until, refused_generation)
            return refused
        credential = body.application_credential
        rules = credential.access_rules if credential is not None else None
        identity = _identity(body)
        known = _Known(identity, tuple(rules) if rules is not None else None, asked_at)
        until = min(identity.expires_at, asked_at + self._settings.cache_seconds * SECOND)
        self._cache.put(token, known, until, generation)
        return known

    def _was_allowed(self, now: int) -> bool:
        return self._allowed_at is not None and now - self._allowed_at < ALLOWED_SECONDS * SECOND

    async def project_exists(self, project_id: str) -> bool | None:
        """Ask for the project; None when Skep's user may not see projects."""
        url = f"{self._v3}/projects/{urllib.parse.quote(project_id, safe='')}"
        response = await self.session.get(url)
        if response.status_code in (403, 404):
            return None if response.status_code == 403 else False
        if response.status_code != 200:
            raise failed(IDENTITY, url, response.status_code)
        if decode(IDENTITY, response, _ProjectBody).project.id != project_id:
            raise nonsense(IDENTITY, "the project is another one")
        return True


def _identity(token: _Token) -> Identity:
    project = token.project
    return Identity(
        user_id=UserId(token.user.id),
        user_name=token.user.name,
        user_domain_id=token.user.domain.id,
        user_domain_name=token.user.domain.name,
        project_id=ProjectId(project.id) if project else None,
        project_name=project.name if project else None,
        project_domain_id=project.domain.id if project else None,
        project_domain_name=project.domain.name if project else None,
        roles=tuple(role.name for role in token.roles),
        system_scope=bool(token.system.get("all")),
        domain_id=token.domain.id if token.domain else None,
        expires_at=time_of(IDENTITY, token.expires_at),
    )
