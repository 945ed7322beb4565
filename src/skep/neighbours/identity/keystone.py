"""Keystone, or any other identity service that speaks its v3 API."""

from __future__ import annotations

import urllib.parse

import httpx
import msgspec

from skep.domain.clock import SECOND, Clock, parse_iso
from skep.domain.errors import Unavailable
from skep.domain.ids import ProjectId, UserId
from skep.neighbours.identity.base import Identity, well_formed
from skep.neighbours.identity.token_cache import TokenCache
from skep.neighbours.service_session import ServiceCredentials, ServiceSession, decode


class KeystoneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How Keystone is asked."""

    credentials: ServiceCredentials
    cache_seconds: int = 300
    """How long an answer is trusted before Keystone is asked again (keystonemiddleware's token_cache_time)."""
    cache_size: int = 10_000


class _Named(msgspec.Struct):
    name: str
    id: str = ""


class _Owner(msgspec.Struct):
    id: str
    name: str
    domain: _Named


class _Token(msgspec.Struct):
    expires_at: str
    user: _Owner
    project: _Owner | None = None
    roles: list[_Named] = []
    system: dict[str, bool] = {}


class _TokenBody(msgspec.Struct):
    token: _Token


class KeystoneIdentity:
    """Validates tokens with Skep's own user, which needs the role `service` or `admin`. Answers are cached."""

    def __init__(self, settings: KeystoneSettings, client: httpx.AsyncClient, clock: Clock) -> None:
        self._settings = settings
        self._v3 = settings.credentials.v3
        self._session = ServiceSession(settings.credentials, client, clock)
        self._clock = clock
        self._cache: TokenCache[Identity] = TokenCache(settings.cache_size)

    async def validate(self, token: str) -> Identity | None:
        """Return whom the token speaks for, from the cache while that is fresh."""
        if not well_formed(token):
            return None
        now = self._clock.now()
        known = self._cache.get(token, now)
        if known is not None:
            return known
        generation = self._cache.generation
        response = await self._session.get(f"{self._v3}/auth/tokens?nocatalog", {"X-Subject-Token": token})
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise Unavailable(f"the identity service answered {response.status_code} to the validation of a token")
        identity = _identity(decode(response, _TokenBody).token)
        if identity.expires_at <= now:
            return None
        until = min(identity.expires_at, now + self._settings.cache_seconds * SECOND)
        self._cache.put(token, identity, until, generation)
        return identity

    async def project_exists(self, project_id: str) -> bool | None:
        """Ask for the project; None when Skep's user may not see projects."""
        response = await self._session.get(f"{self._v3}/projects/{urllib.parse.quote(project_id, safe='')}")
        return {200: True, 404: False}.get(response.status_code)


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
        expires_at=parse_iso(token.expires_at),
    )
