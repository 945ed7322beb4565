"""Tokens: an encrypted payload that the client carries. Nothing of a token is stored or logged."""

from __future__ import annotations

import base64
import binascii
import secrets
from functools import lru_cache

import msgspec

from skep.database.api.role_assignments import RoleScope
from skep.domain.decoding import msgpack_decoder
from skep.neighbours.identity.base import well_formed
from skep.standalone.key_ring import KeyRing

REMEMBERED = 4096
"""Tokens."""


class TokenPayload(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a token says.

    Roles are not in it: they are looked up when it is validated, so that one taken away is gone at once.
    """

    user_id: str
    """Empty where `of_user` says it."""
    project_id: str | None
    system: bool
    methods: tuple[str, ...]
    issued_at: int
    """Microseconds since the epoch, as `expires_at`."""
    expires_at: int
    audit_ids: tuple[str, ...]
    """Its own id first, then that of the token it was made from."""
    domain_id: str | None = None
    credential_id: str = ""
    """Of a token that an application credential was shown for."""
    of_user: str = ""
    """The user of a token that 0.7.0 would take for more than it is: to that release it is nobody's."""

    @property
    def user(self) -> str:
        """Id of the user."""
        return self.of_user or self.user_id

    @property
    def scope(self) -> RoleScope | None:
        """What the token is good for; None: it has no scope."""
        if self.project_id is None and self.domain_id is None and not self.system:
            return None
        return RoleScope(project_id=self.project_id, domain_id=self.domain_id)


class _NotOurs(Exception):
    """No key of ours has made this token, or it is spelled in another way."""


def new_audit_id() -> str:
    """Return a random id that names a token in the list of revoked ones."""
    return secrets.token_urlsafe(16)


class Tokens:
    """Turns payloads into tokens and back. What a token was decrypted to is remembered while no key changes."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._remembered = lru_cache(REMEMBERED)(self._decrypted)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgpack_decoder(TokenPayload)

    def encode(self, payload: TokenPayload) -> str:
        """Return the token of a payload, without padding as Keystone's tokens are."""
        return self._keys.encrypt(self._encoder.encode(payload), payload.issued_at).decode().rstrip("=")

    def decode(self, token: str) -> TokenPayload | None:
        """Return the payload of a token of ours, or None for anything else: another spelling of one included."""
        try:
            return self._remembered(token, self._keys.version) if well_formed(token) else None
        except _NotOurs:
            return None

    def _decrypted(self, token: str, _keys: object) -> TokenPayload:
        """Return the payload of a token. Raises _NotOurs: what is no token is not remembered."""
        padded = _padded(token)
        plain = None if padded is None else self._keys.decrypt(padded)
        if plain is None:
            raise _NotOurs
        return self._decoder.decode(plain)


def _padded(token: str) -> bytes | None:
    """Return the base64 of a token with its padding, or None unless the token is spelled as `encode` spells it.

    Decoders of base64 pass over padding, foreign characters and spare bits, so that one token would have many names.
    """
    padded = token.encode() + b"=" * (-len(token) % 4)
    try:
        raw = base64.urlsafe_b64decode(padded)
    except binascii.Error:
        return None
    return padded if base64.urlsafe_b64encode(raw) == padded and not token.endswith("=") else None
