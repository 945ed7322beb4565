"""Credentials of programs: a secret that is bound to one cell, or to one namespace of host states.

A token reads `skep_ID_SECRET`. The secret is 256 random bits, so a fast hash of it is enough at rest: they cannot
be tried out, and no stretching would make that slower. It is keyed with the credential's id, so that equal hashes of
two installations say nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Literal

import msgspec

ScopeKind = Literal["cell", "namespace"]

PREFIX = "skep"
LONGEST = 200
"""Characters of a token; ours have 81."""

LONGEST_ID = 64
"""Characters of an id, as BLAKE2b takes them for a key; ours have 32."""


class Scope(msgspec.Struct, frozen=True):
    """What a credential is bound to."""

    kind: ScopeKind
    name: str
    """The UUID of the cell, or the name of the namespace."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One credential, without its secret. Times are microseconds since the epoch."""

    id: str
    scope: Scope
    description: str
    created_at: int
    created_by: str
    """The user who asked for it."""
    expires_at: int | None = None
    """None: never."""
    last_used_at: int | None = None
    """Kept coarsely: at most once in some minutes."""


class Token(msgspec.Struct, frozen=True):
    """A token taken apart."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """What the program keeps and sends."""
        return f"{PREFIX}_{self.id}_{self.secret}"

    @property
    def digest(self) -> bytes:
        """The stored digest of the secret."""
        hashed = hashlib.blake2b(self.secret.encode(), key=self.id.encode(), person=b"skep-credential", digest_size=32)
        return hashed.digest()

    def matches(self, digest: bytes) -> bool:
        """Tell whether this is the secret of which `digest` was stored; takes as long whatever it is."""
        return hmac.compare_digest(self.digest, digest)


def new_token() -> Token:
    """Return a new random token."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    return Token(secrets.token_hex(16), secret)


def parse(text: str) -> Token | None:
    """Take a token apart; None when it has not our form."""
    if len(text) > LONGEST or not text.isascii():
        return None
    parts = text.split("_", 2)
    if len(parts) != 3 or parts[0] != PREFIX or not parts[1].isalnum() or len(parts[1]) > LONGEST_ID or not parts[2]:
        return None
    return Token(parts[1], parts[2])
