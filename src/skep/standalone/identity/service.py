"""The identity service itself: signing in, validating, taking back. HTTP is in `app.py`."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from skep.database import Connection
from skep.database.api import application_credentials, domains, projects, revoked_tokens, users
from skep.database.api.application_credentials import ApplicationCredential
from skep.database.api.role_assignments import RoleScope
from skep.database.api.users import User
from skep.database.engine import Database, T, Unit
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Forbidden, Overloaded, TooManyAttempts, Unauthenticated
from skep.http.addresses import network_of
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import EXPIRED_SECONDS, Identity
from skep.neighbours.identity.token_cache import TokenCache
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.identity import credentials, grants
from skep.standalone.identity.attempts import Applicant, Rules, SignInAttempts
from skep.standalone.identity.credentials import (
    Auth,
    CredentialMethod,
    DomainReference,
    ProjectReference,
    TokenScope,
    UserPassword,
    UserReference,
)
from skep.standalone.identity.grants import Grant
from skep.standalone.identity.password_rules import PasswordRules
from skep.standalone.identity.passwords import Passwords
from skep.standalone.identity.settings import IdentitySettings
from skep.standalone.identity.tokens import TokenPayload, Tokens, new_audit_id
from skep.standalone.identity.turns import Place
from skep.standalone.key_ring import KeyRing

log = structlog.get_logger("skep.identity")


def _to_nobody(_outcome: str) -> None:
    return


class StandaloneIdentity:
    """Users, projects and tokens in the API database. It is an `IdentityService` for its own process as well.

    What this process changes counts at once; what another process changes, after `cache_seconds`.
    """

    def __init__(
        self,
        settings: IdentitySettings,
        database: Database,
        clock: Clock,
        *,
        said: Callable[[str], None] = _to_nobody,
    ) -> None:
        """Open the service; `said` is told how each check of a password ended.

        Raises Misconfigured when the key file cannot be used, or a setting is wrong.
        """
        self._said = said
        self._attempts = SignInAttempts(
            Rules(
                free=settings.sign_in_failures,
                longest_delay=settings.sign_in_longest_delay,
                lockout=settings.lockout_failure_attempts,
                lockout_duration=settings.lockout_duration,
            )
        )
        self.settings = settings
        self.database = database
        self.clock = clock
        self.passwords = Passwords(
            cost=settings.scrypt_cost, threads=settings.password_threads, waiting=settings.passwords_waiting
        )
        self.password_rules = PasswordRules(settings)
        self._tokens = Tokens(KeyRing(settings.key_file))
        self._cache: TokenCache[Grant] = TokenCache(settings.cache_size)

    def close(self) -> None:
        """Finish what runs. The database stays open: it belongs to the caller."""
        self.passwords.close()

    def remembers(self, _token: str) -> bool:
        """Tokens are opened here; no other service is asked."""
        return True

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:
        """Return whom the token speaks for, or None when it is not valid."""
        grant = await self.grant(token, expired_seconds=EXPIRED_SECONDS if chained else 0)
        return grant.identity if grant is not None and (chained or grant.is_for(use)) else None

    async def project_exists(self, project_id: str) -> bool | None:
        """Tell whether there is such a project."""
        return await self.database.read(lambda connection: projects.get(connection, project_id)) is not None

    async def grant(self, token: str, *, expired_seconds: int = 0) -> Grant | None:
        """Return all that a valid token stands for, or None; it may have expired so many seconds ago."""
        now = self.clock.now()
        payload = self._tokens.decode(token)
        if payload is None or payload.expires_at + expired_seconds * SECOND <= now:
            return None
        # By what the token says, not by how it is spelled: it is revoked by that as well.
        audit_id = payload.audit_ids[0]
        known = self._cache.get(audit_id, now)
        if known is not None:
            return known
        generation = self._cache.generation
        grant = await self.database.read(lambda connection: grants.load(connection, payload))
        if grant is not None:
            until = now + self.settings.cache_seconds * SECOND
            until = min(payload.expires_at, until) if payload.expires_at > now else until
            self._cache.put(audit_id, grant, until, generation)
        return grant

    async def sign_in(self, auth: Auth, address: str) -> tuple[str, Grant]:
        """Check the proof that came from an address and return a new token and what it is good for.

        Raises BadRequest for an incomplete body, Unauthenticated without a reason for a wrong proof or scope,
        TooManyAttempts after too many wrong passwords, Overloaded when too many passwords wait to be checked.
        """
        credentials.check(auth)
        if auth.identity.application_credential is not None and "application_credential" in auth.identity.methods:
            return await self._by_credential(auth.identity.application_credential, address)
        parent = await self._parent(auth)
        by_password = await self._by_password(auth, address)
        if parent is not None and by_password is not None and parent.user.id != by_password.id:
            raise Unauthenticated(UNAUTHENTICATED)
        user = by_password or (parent.user if parent else None)
        if user is None:
            raise Unauthenticated(UNAUTHENTICATED)
        grant = await self.database.read(lambda connection: self._new_grant(connection, auth, user, parent))
        if grant is None:
            log.info("sign-in refused", user=user.id, reason="no role in the scope asked for")
            raise Unauthenticated(UNAUTHENTICATED)
        return self._tokens.encode(grant.payload), grant

    async def revoke(self, grant: Grant) -> None:
        """Take the token of a grant back, for good and at once."""
        payload = grant.payload
        # Services may show it for some time after its end.
        forgotten = self.clock.now() - EXPIRED_SECONDS * SECOND
        await self.database.write(
            lambda connection: revoked_tokens.insert(connection, payload.audit_ids[0], payload.expires_at, forgotten)
        )
        self._cache.forget(payload.audit_ids[0])

    async def change(self, unit: Unit[T]) -> T:
        """Write users, projects or roles; tokens are looked up anew afterwards."""
        try:
            return await self.database.write(unit, intake=True)
        finally:
            self._cache.clear()

    async def _parent(self, auth: Auth) -> Grant | None:
        if "token" not in auth.identity.methods or auth.identity.token is None:
            return None
        grant = await self.grant(auth.identity.token.id)
        if grant is None or not grant.is_for(None):
            raise Unauthenticated(UNAUTHENTICATED)
        if grant.credential is not None:
            raise Forbidden("A token of an application credential makes no other token.")
        return grant

    async def _by_credential(self, given: CredentialMethod, address: str) -> tuple[str, Grant]:
        credential, user = await self.database.read(lambda connection: _find_credential(connection, given))
        named = f"application credential {given.id or given.name}"
        stored = credential.secret_hash if credential else None
        await self._prove(
            Applicant(f"credential {credential.id}" if credential else named, address),
            named,
            given.secret,
            stored,
            valid=credential is not None and _is_valid(credential, self.clock.now()),
        )
        assert credential is not None
        issued_at = max(self.clock.now(), (user.tokens_invalid_before if user else 0) + 1)
        payload = TokenPayload(
            user_id="",
            of_user=credential.user_id,
            project_id=credential.project_id,
            credential_id=credential.id,
            system=False,
            methods=("application_credential",),
            issued_at=issued_at,
            expires_at=min(
                issued_at + self.settings.token_expiration * SECOND,
                credential.expires_at or issued_at + self.settings.token_expiration * SECOND,
            ),
            audit_ids=(new_audit_id(),),
        )
        grant = await self.database.read(lambda connection: grants.load(connection, payload))
        if grant is None:
            log.info("sign-in refused", user=credential.user_id, reason="no role in the credential's project")
            raise Unauthenticated(UNAUTHENTICATED)
        return self._tokens.encode(payload), grant

    async def _by_password(self, auth: Auth, address: str) -> User | None:
        if "password" not in auth.identity.methods or auth.identity.password is None:
            return None
        given = auth.identity.password.user
        user = await self.database.read(lambda connection: _find_user(connection, given))
        found = await self.proven(user, given.id or given.name or "", given.password, address)
        if found.password_expires_at is not None and found.password_expires_at <= self.clock.now():
            # Told to nobody but who has shown the right one.
            raise Unauthenticated(f"The password is expired and needs to be changed for user: {found.id}.")
        return found

    async def proven(self, user: User | None, named: str, password: str, address: str) -> User:
        """Return the user, if the password is right. `named` is who was asked for, whether there is such a user or not.

        Raises Unauthenticated without a reason, TooManyAttempts, Overloaded.
        """
        who = Applicant(user.id if user else named, address)
        stored = user.password_hash if user else None
        await self._prove(who, named, password, stored, valid=user is not None and user.enabled)
        assert user is not None
        return user

    async def _prove(self, who: Applicant, named: str, secret: str, stored: str | None, *, valid: bool) -> None:
        """Check a password or secret against a stored hash; what is not `valid` is wrong after the same work."""
        address = who.address

        def check() -> None:
            seconds = self._attempts.wait(who, self.clock.now())
            if seconds:
                self._said("delayed")
                log.warning("sign-in delayed", user=named[:255], address=address, retry_after=seconds)
                raise TooManyAttempts.until(seconds)

        check()
        place = Place(network_of(address), who.user, self._attempts.is_proven(who))
        try:
            async with self.passwords.turn(place) as turn:
                # Others of this place may have failed since: none of them is ahead of the count.
                check()
                right = await turn.verify(secret, stored)
                if not right or not valid:
                    self._attempts.failed(who, self.clock.now())
                    raise Unauthenticated(UNAUTHENTICATED)
        except Overloaded:
            self._said("overloaded")
            raise
        except Unauthenticated:
            self._said("wrong")
            log.info("sign-in refused", user=named[:255], address=address, reason="wrong user or password, or disabled")
            raise
        self._attempts.succeeded(who)
        self._said("right")

    def _new_grant(self, connection: Connection, auth: Auth, user: User, parent: Grant | None) -> Grant | None:
        scope, exists = _scope(connection, auth.scope, user)
        if not exists:
            return None
        # Never at or before the time up to which the user's tokens were taken back.
        issued_at = max(self.clock.now(), user.tokens_invalid_before + 1)
        expires_at = issued_at + self.settings.token_expiration * SECOND
        methods = set(auth.identity.methods)
        audit_ids: tuple[str, ...] = (new_audit_id(),)
        if parent is not None:
            # A token made from a token lives no longer than the first one.
            expires_at = min(expires_at, parent.payload.expires_at)
            methods |= set(parent.payload.methods)
            audit_ids += (parent.payload.audit_ids[-1],)
        payload = TokenPayload(
            user_id=user.id,
            project_id=scope.project_id if scope else None,
            domain_id=scope.domain_id if scope else None,
            system=scope == RoleScope(),
            methods=tuple(sorted(methods)),
            issued_at=issued_at,
            expires_at=expires_at,
            audit_ids=audit_ids,
        )
        return grants.load(connection, payload)


def _find_user(connection: Connection, given: UserPassword | UserReference) -> User | None:
    if given.id is not None:
        return users.get(connection, given.id)
    domain_id = _domain_id(connection, given.domain)
    return None if domain_id is None or given.name is None else users.by_name(connection, given.name, domain_id)


def _find_credential(
    connection: Connection, given: CredentialMethod
) -> tuple[ApplicationCredential | None, User | None]:
    if given.id is not None:
        credential = application_credentials.get(connection, given.id)
    else:
        assert given.user is not None
        user = _find_user(connection, given.user)
        of_user = application_credentials.of_user(connection, user.id, name=given.name) if user else []
        credential = next(iter(of_user), None)
    return credential, users.get(connection, credential.user_id) if credential else None


def _is_valid(credential: ApplicationCredential, now: int) -> bool:
    return credential.expires_at is None or credential.expires_at > now


def _scope(connection: Connection, asked: TokenScope | str | None, user: User) -> tuple[RoleScope | None, bool]:
    """Return the scope asked for, and whether there is such a one; no scope at all is one."""
    if isinstance(asked, str) or (asked is not None and asked.unscoped is not None):
        return None, True
    if asked is None:
        return _default_project(connection, user), True
    if asked.system is not None:
        return RoleScope(), True
    if asked.domain is not None:
        domain_id = _domain_id(connection, asked.domain)
        return RoleScope(domain_id=domain_id), domain_id is not None
    assert asked.project is not None
    project_id = _project_id(connection, asked.project)
    return RoleScope(project_id=project_id), project_id is not None


def _default_project(connection: Connection, user: User) -> RoleScope | None:
    project = projects.get(connection, user.default_project_id) if user.default_project_id is not None else None
    if project is None or not project.enabled:
        return None
    scope = RoleScope(project_id=project.id)
    return scope if grants.effective_roles(connection, user.id, scope) else None


def _project_id(connection: Connection, reference: ProjectReference) -> str | None:
    if reference.id is not None:
        return reference.id
    domain_id = _domain_id(connection, reference.domain)
    if domain_id is None or reference.name is None:
        return None
    project = projects.by_name(connection, reference.name, domain_id)
    return None if project is None else project.id


def _domain_id(connection: Connection, reference: DomainReference | None) -> str | None:
    if reference is None:
        return None
    if reference.id is not None:
        return reference.id
    domain = domains.by_name(connection, reference.name) if reference.name is not None else None
    return None if domain is None else domain.id
