"""The body of `POST /v3/auth/tokens`: how somebody proves who he is, and what the token shall be good for."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.domain.errors import BadRequest
from skep.standalone.texts import TEXT

Text = Annotated[str, Meta(max_length=255, pattern=TEXT)]
Secret = Annotated[str, Meta(max_length=4096, pattern=TEXT)]


class DomainReference(msgspec.Struct, frozen=True):
    """A domain by id, or by name."""

    id: Text | None = None
    name: Text | None = None


class UserPassword(msgspec.Struct, frozen=True):
    """A user by id, or by name and domain, with the password."""

    password: Secret
    id: Text | None = None
    name: Text | None = None
    domain: DomainReference | None = None

    def __repr__(self) -> str:
        """Leaves the password out."""
        return f"UserPassword(id={self.id!r}, name={self.name!r})"


class PasswordMethod(msgspec.Struct, frozen=True):
    """Proof by password."""

    user: UserPassword


class TokenMethod(msgspec.Struct, frozen=True):
    """Proof by a token that was issued before."""

    id: Annotated[str, Meta(max_length=8192)]

    def __repr__(self) -> str:
        """Leaves the token out."""
        return "TokenMethod()"


class UserReference(msgspec.Struct, frozen=True):
    """A user by id, or by name and domain."""

    id: Text | None = None
    name: Text | None = None
    domain: DomainReference | None = None


class CredentialMethod(msgspec.Struct, frozen=True):
    """Proof by an application credential: by its id, or by its name and its user."""

    secret: Secret
    id: Text | None = None
    name: Text | None = None
    user: UserReference | None = None

    def __repr__(self) -> str:
        """Leaves the secret out."""
        return f"CredentialMethod(id={self.id!r}, name={self.name!r})"


class Proof(msgspec.Struct, frozen=True):
    """The methods used, and what each needs."""

    methods: Annotated[tuple[str, ...], Meta(min_length=1, max_length=8)]
    password: PasswordMethod | None = None
    token: TokenMethod | None = None
    application_credential: CredentialMethod | None = None


class ProjectReference(msgspec.Struct, frozen=True):
    """A project by id, or by name and domain."""

    id: Text | None = None
    name: Text | None = None
    domain: DomainReference | None = None


class SystemScope(msgspec.Struct, frozen=True):
    """The whole system, for those who administer it."""

    all: bool


class TokenScope(msgspec.Struct, frozen=True):
    """What the token shall be good for."""

    project: ProjectReference | None = None
    system: SystemScope | None = None
    domain: DomainReference | None = None
    unscoped: dict[str, Any] | None = None


class Auth(msgspec.Struct, frozen=True):
    """Proof and scope; without a scope it is the user's default project, if he has a role there."""

    identity: Proof
    scope: TokenScope | str | None = None


class AuthBody(msgspec.Struct, frozen=True):
    """The whole body."""

    auth: Auth


METHODS = ("password", "token", "application_credential")


def check(auth: Auth) -> None:
    """Refuse what is incomplete or not served.

    Raises BadRequest naming the field.
    """
    proof = auth.identity
    for method in proof.methods:
        if method not in METHODS:
            raise BadRequest(f"auth.identity.methods: expected one of {', '.join(METHODS)}, got {method!r}")
        if getattr(proof, method) is None:
            raise BadRequest(f"auth.identity.{method}: expected a value for the method {method!r}")
    if proof.password is not None:
        _check_named("auth.identity.password.user", proof.password.user)
    if "application_credential" in proof.methods:
        _check_credential(auth)
    _check_scope(auth.scope)


def _check_credential(auth: Auth) -> None:
    given = auth.identity.application_credential
    assert given is not None
    if set(auth.identity.methods) != {"application_credential"}:
        raise BadRequest("auth.identity.methods: expected `application_credential` alone")
    if auth.scope is not None:
        raise BadRequest("auth.scope: expected none, an application credential is good for one project")
    if given.id is None:
        if given.name is None or given.user is None:
            raise BadRequest("auth.identity.application_credential: expected an `id`, or a `name` and a `user`")
        _check_named("auth.identity.application_credential.user", given.user)


def _check_scope(scope: TokenScope | str | None) -> None:
    if isinstance(scope, str):
        if scope != "unscoped":
            raise BadRequest("auth.scope: expected an object or `unscoped`")
        return
    if scope is None:
        return
    given = [name for name in ("project", "system", "domain", "unscoped") if getattr(scope, name) is not None]
    if len(given) != 1:
        raise BadRequest("auth.scope: expected exactly one of project, domain, system, unscoped")
    if scope.domain is not None and scope.domain.id is None and scope.domain.name is None:
        raise BadRequest("auth.scope.domain: expected an `id` or a `name`")
    if scope.system is not None and not scope.system.all:
        raise BadRequest("auth.scope.system.all: expected true")
    if scope.project is not None:
        _check_named("auth.scope.project", scope.project)


def _check_named(field: str, reference: UserPassword | UserReference | ProjectReference) -> None:
    if reference.id is not None:
        return
    if reference.name is None:
        raise BadRequest(f"{field}: expected an `id`, or a `name` and a `domain`")
    if reference.domain is None:
        raise BadRequest(f"{field}.domain: expected a value with `name`")
