"""Rows of other programs: credentials and namespaces, in both kinds of databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from skep.database.api import credentials, namespaces
from skep.domain.clock import SECOND
from skep.domain.credentials import Credential, Scope, Token, new_token
from skep.domain.errors import Conflict
from skep.domain.namespaces import MAX_NAMESPACES, Namespace, NamespaceField, Schema

NOW = 1_800_000_000 * SECOND
CELL, VOLUME = Scope("cell", "c"), Scope("namespace", "volume")
SCHEMA = Schema(fields={"free_gb": NamespaceField(type="integer", minimum=0)})


def made(connection: sa.Connection, scope: Scope = CELL, expires_at: int | None = None) -> Token:
    token = new_token()
    new = Credential(
        id=token.id, scope=scope, description="d", created_at=NOW, created_by="admin", expires_at=expires_at
    )
    assert credentials.add(connection, new, token)
    return token


def test_a_credential_is_found_by_its_whole_token_only(api: sa.Connection) -> None:
    token = made(api)
    found = credentials.find(api, token, NOW)
    assert found is not None
    assert (found.id, found.scope, found.last_used_at) == (token.id, CELL, None)
    assert credentials.find(api, replace(token, secret=new_token().secret), NOW) is None
    assert credentials.find(api, replace(token, id=new_token().id), NOW) is None


def test_it_ends_when_it_expires(api: sa.Connection) -> None:
    token = made(api, expires_at=NOW + SECOND)
    assert credentials.find(api, token, NOW) is not None
    assert credentials.find(api, token, NOW + SECOND) is None


def test_the_last_use_is_kept_coarsely(api: sa.Connection) -> None:
    token = made(api)
    found = credentials.find(api, token, NOW)
    assert found is not None
    assert credentials.needs_mark(found, NOW)
    credentials.mark_used(api, token.id, NOW)
    found = credentials.find(api, token, NOW)
    assert found is not None
    assert not credentials.needs_mark(found, NOW + (credentials.USED_SECONDS - 1) * SECOND)
    assert credentials.needs_mark(found, NOW + credentials.USED_SECONDS * SECOND)


def test_only_its_own_scope_takes_it_back(api: sa.Connection) -> None:
    token = made(api)
    assert not credentials.remove(api, VOLUME, token.id)
    assert credentials.remove(api, CELL, token.id)
    assert not credentials.remove(api, CELL, token.id)
    assert credentials.find(api, token, NOW) is None


def test_credentials_go_with_their_namespace(api: sa.Connection) -> None:
    namespaces.put(api, Namespace(name="volume", schema=SCHEMA), NOW)
    token, other = made(api, VOLUME), made(api, CELL)
    assert namespaces.remove(api, "volume")
    assert not namespaces.remove(api, "volume")
    assert credentials.find(api, token, NOW) is None
    assert credentials.find(api, other, NOW) is not None


def test_a_namespace_is_stored_widened_and_never_narrowed(api: sa.Connection) -> None:
    first = Namespace(name="volume", schema=SCHEMA)
    assert namespaces.put(api, first, NOW)
    assert not namespaces.put(api, first, NOW)
    wider = replace(first, schema=Schema(fields={**SCHEMA.fields, "kind": NamespaceField(type="string")}))
    assert not namespaces.put(api, wider, NOW)
    assert namespaces.get(api, "volume") == wider
    with pytest.raises(Conflict, match=r"fields\.kind"):
        namespaces.put(api, first, NOW)
    assert namespaces.published(api).namespaces == (wider,)


def test_there_are_so_many_namespaces_and_no_more(api: sa.Connection) -> None:
    for number in range(MAX_NAMESPACES):
        namespaces.put(api, Namespace(name=f"n{number}", schema=SCHEMA), NOW)
    with pytest.raises(Conflict, match="namespaces already"):
        namespaces.put(api, Namespace(name="more", schema=SCHEMA), NOW)
