"""Key pairs: of the caller, and for admins of any user (2.10)."""

from __future__ import annotations

from typing import Any

from skep.api import telling
from skep.api.public_keys import EXPECTED, fingerprint
from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import key_pairs, quotas
from skep.database.api.key_pairs import StoredKeyPair
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound, QuotaExceeded
from skep.domain.ids import UserId
from skep.domain.invalid_input import invalid_field
from skep.domain.key_pairs import KeyPair


async def index(request: ApiRequest) -> Answer:
    """`GET /os-keypairs`; `user_id` (2.10) names another user."""
    user = _whose(request, request.first("user_id"))
    limit, marker = request.page()

    def unit(connection: Connection) -> tuple[StoredKeyPair, ...]:
        if marker is not None and key_pairs.get(connection, user, marker) is None:
            raise BadRequest(f"Marker {marker[:255]} could not be found.")
        return key_pairs.page(connection, user, limit=limit, after=marker)

    found = await request.services.database.read(unit)
    body: dict[str, Any] = {"keypairs": [{"keypair": _listed(one)} for one in found]}
    links = request.next_link("os-keypairs", len(found), found[-1].name) if found else None
    if links is not None:
        body["keypairs_links"] = links
    return Answer(body)


async def show(request: ApiRequest) -> Answer:
    """`GET /os-keypairs/{name}`."""
    user, name = _whose(request, request.first("user_id")), request.params["name"]
    found = await request.services.database.read(lambda c: key_pairs.get(c, user, name))
    if found is None:
        raise _not_found(user, name)
    shown: dict[str, Any] = {
        **_listed(found),
        "user_id": found.user_id,
        "id": found.id,
        "created_at": isoformat_micro(found.created_at),
        "deleted": False,
        "deleted_at": None,
        "updated_at": None,
    }
    return Answer({"keypair": shown})


async def create(request: ApiRequest) -> Answer:
    """`POST /os-keypairs`: a public key that is brought, or before 2.92 a pair that is generated."""
    asked = request.body["keypair"]
    user, name, kind = _whose(request, asked.get("user_id")), asked["name"], asked.get("type", "ssh")
    now = request.services.clock.now()
    defaults = await request.services.quotas_of(request.context.project_id)
    private_key = None
    if "public_key" in asked:
        public_key = asked["public_key"]
        print_ = fingerprint(kind, public_key)
        if print_ is None:
            raise invalid_field("keypair.public_key", public_key, EXPECTED[kind])
    else:
        await request.services.database.read(lambda c: _check(c, request, user, name, defaults))
        public_key, private_key = await request.services.key_generator.generate(kind, user, now)
        print_ = fingerprint(kind, public_key)
        assert print_ is not None, "a key was generated that is none"
    pair = KeyPair(name=name, type=kind, public_key=public_key, fingerprint=print_)

    def unit(connection: Connection) -> StoredKeyPair:
        _check(connection, request, user, name, defaults)
        stored = key_pairs.add(connection, user, pair, now)
        assert stored is not None, "a name that was free is taken"
        return stored

    stored = await request.services.database.write(unit)
    telling.key_pair(request, "create" if private_key is not None else "import", stored)
    made = {**_listed(stored), "user_id": user}
    if private_key is not None:
        made["private_key"] = private_key
    return Answer({"keypair": made})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-keypairs/{name}`: servers keep the key that they were given."""
    user, name = _whose(request, request.first("user_id")), request.params["name"]

    def unit(connection: Connection) -> StoredKeyPair:
        found = key_pairs.get(connection, user, name)
        if found is None or not key_pairs.remove(connection, user, name):
            raise _not_found(user, name)
        return found

    telling.key_pair(request, "delete", await request.services.database.write(unit))
    return Answer()


async def named_key_pair(request: ApiRequest, name: str | None, key: str) -> KeyPair | None:
    """Return the copy that a server gets of a key pair of the caller; None where none is named.

    Raises BadRequest, naming `key.key_name`, where the caller has none of this name.
    """
    if name is None:
        return None
    user = request.context.user_id
    found = await request.services.database.read(lambda c: key_pairs.get(c, user, name))
    if found is None:
        raise invalid_field(f"{key}.key_name", name, "the name of a key pair of the caller")
    return KeyPair(name=found.name, type=found.type, public_key=found.public_key, fingerprint=found.fingerprint)


def _whose(request: ApiRequest, named: str | None) -> UserId:
    """Return the user whose key pairs are meant, once the caller is allowed to."""
    user = UserId(named) if named else request.context.user_id
    request.authorize(user_id=user)
    return user


def _check(connection: Connection, request: ApiRequest, user: UserId, name: str, defaults: dict[str, int]) -> None:
    """Raise QuotaExceeded or Conflict where the user can have no key pair more, or none of this name."""
    limits = quotas.limits(connection, request.context.project_id, user, defaults=defaults)
    if 0 <= limits["key_pairs"] <= key_pairs.count(connection, user):
        raise QuotaExceeded("Quota exceeded, too many key pairs.")
    if key_pairs.get(connection, user, name) is not None:
        raise Conflict(f"Key pair '{name}' already exists.")


def _listed(pair: KeyPair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "type": pair.type,
        "public_key": pair.public_key,
        "fingerprint": pair.fingerprint,
    }


def _not_found(user: str, name: str) -> NotFound:
    return NotFound(f"Keypair {name[:255]} not found for user {user}")
