"""Tokens: an encrypted payload that the client carries. Nothing of a token is stored or logged."""

from __future__ import annotations

import secrets

import msgspec

from skep.neighbours.identity.base import well_formed
from skep.standalone.identity.keys import TokenKeys


class TokenPayload(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a token says.

    Roles are not in it: they are looked up when it is validated, so that one taken away is gone at once.
    """

    user_id: str
    project_id: str | None
    system: bool
    methods: tuple[str, ...]
    issued_at: int
    """Microseconds since the epoch, as `expires_at`."""
    expires_at: int
    audit_ids: tuple[str, ...]
    """Its own id first, then that of the token it was made from."""


def new_audit_id() -> str:
    """Return a random id that names a token in the list of revoked ones."""
    return secrets.token_urlsafe(16)


class Tokens:
    """Turns payloads into tokens and back."""

    def __init__(self, keys: TokenKeys) -> None:
        self._keys = keys
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(TokenPayload)

    def encode(self, payload: TokenPayload) -> str:
        """Return the token of a payload, without padding as Keystone's tokens are."""
        return self._keys.encrypt(self._encoder.encode(payload), payload.issued_at).decode().rstrip("=")

    def decode(self, token: str) -> TokenPayload | None:
        """Return the payload of a token of ours, or None for anything else."""
        if not well_formed(token):
            return None
        plain = self._keys.decrypt(_padded(token))
        return None if plain is None else self._decoder.decode(plain)


def _padded(token: str) -> bytes:
    raw = token.encode().rstrip(b"=")
    return raw + b"=" * (-len(raw) % 4)
