"""Creates that are sent again: under one `Idempotency-Key` there is one create, and one answer to it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from skep.api.requests import ApiRequest
from skep.database.api.kept_answers import KeptAnswer, KeyedCreate
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest, Conflict

HEADER = "Idempotency-Key"
LONGEST = 255


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a create was answered with."""

    servers: tuple[str, ...]
    reservation_id: str | None = None
    """Where that was asked for; the servers are not named then."""
    disk_config: str
    admin_password: str


def question_of(request: ApiRequest) -> KeyedCreate | None:
    """Return under which key a create is sent; None: under none.

    Raises BadRequest for a key that is none.
    """
    key = request.idempotency_key
    if key is None:
        return None
    if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
        raise BadRequest(f"{HEADER}: expected 1 to {LONGEST} printable ASCII characters.")
    return KeyedCreate(
        project_id=request.context.project_id,
        user_id=request.context.user_id,
        key=key,
        asked=_digest(request.version, request.body),
    )


def kept_answer(request: ApiRequest, kept: KeptAnswer) -> Given:
    """Return what was answered under the key before.

    Raises Conflict when that was to another body, or cannot be opened any more.
    """
    if not kept.same:
        raise Conflict(
            f"{HEADER}: this key was used for another request within the last 24 hours. Use a new key, or send the "
            "same body with the same microversion."
        )
    opened = request.services.unseal(kept.answer)
    if opened is None:
        raise Conflict(f"{HEADER}: the stored answer of this key cannot be read any more; list the servers.")
    return json_decoder(Given).decode(opened)


def _digest(version: int, body: Any) -> bytes:
    return hashlib.sha256(msgspec.json.encode([version, body], order="sorted")).digest()
