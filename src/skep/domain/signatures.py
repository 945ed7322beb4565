"""How an agent signs its messages: Ed25519 (RFC 8032), each kind of statement with its own prefix.

The cell stands in what is signed, so that nothing said in one cell can be told in another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CellUuid
from skep.domain.timelines import Moment

PUBLIC_KEY_BYTES = 32
CHALLENGE_BYTES = 16
"""Of the random part of a challenge."""
_DIGEST_BYTES = 32


def new_seed() -> bytes:
    """Return a new private key, as its 32 bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


class Signer:
    """Signs with one agent's key in one cell."""

    def __init__(self, seed: bytes, cell: CellUuid) -> None:
        """Raises ValueError when the seed has not 32 bytes."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._cell = cell
        self.public_key = self._key.public_key().public_bytes_raw()

    def registration(self, identity: AgentIdentity) -> bytes:
        """Return the signature of a registration."""
        return self._key.sign(_registration(self._cell, identity))

    def run(
        self,
        identity: AgentIdentity,
        number: int,
        exchange_key: bytes,
        challenge: bytes,
        seen: Moment | None = None,
    ) -> bytes:
        """Return the signature of the beginning of a session: which run it is, the key that it brings, what it saw."""
        return self._key.sign(_run(self._cell, identity, number, exchange_key, challenge, seen))

    def next_key(self, identity: AgentIdentity, key: bytes) -> bytes:
        """Return the signature by which this key names the one that follows it."""
        return self._key.sign(_next_key(self._cell, identity, key))

    def report(self, body: bytes) -> bytes:
        """Return the signature of an encoded report."""
        return self._key.sign(_report(self._cell, body))


def new_challenge(orders: Sequence[str], capabilities: Sequence[str] | None = None) -> bytes:
    """Return the challenge of a registration: random bytes, then a digest of what the agent says that it can do.

    The signature of the run covers the challenge, and so orders and capabilities, also at conductors of releases before
    0.7.0.
    """
    return os.urandom(CHALLENGE_BYTES) + _digest(orders, capabilities)


def names_orders(challenge: bytes, orders: Sequence[str], capabilities: Sequence[str] | None = None) -> bool:
    """Tell whether a challenge was made for these orders and capabilities. Agents before 0.7.0 name none."""
    if len(challenge) <= CHALLENGE_BYTES:
        return not orders and capabilities is None
    return challenge[CHALLENGE_BYTES:] == _digest(orders, capabilities)


def signed_registration(public_key: bytes, cell: CellUuid, identity: AgentIdentity, signature: bytes) -> bool:
    """Tell whether the private half of this key signed the registration."""
    return _signed(public_key, signature, _registration(cell, identity))


def signed_run(
    public_key: bytes,
    cell: CellUuid,
    identity: AgentIdentity,
    number: int,
    exchange_key: bytes,
    challenge: bytes,
    signature: bytes,
    seen: Moment | None = None,
) -> bool:
    """Tell whether the private half of this key signed the beginning of a session."""
    return _signed(public_key, signature, _run(cell, identity, number, exchange_key, challenge, seen))


def signed_next_key(public_key: bytes, cell: CellUuid, identity: AgentIdentity, key: bytes, signature: bytes) -> bool:
    """Tell whether the private half of this key signed the next key."""
    return _signed(public_key, signature, _next_key(cell, identity, key))


def signed_report(public_key: bytes, cell: CellUuid, body: bytes, signature: bytes) -> bool:
    """Tell whether the private half of this key signed the encoded report."""
    return _signed(public_key, signature, _report(cell, body))


def _registration(cell: CellUuid, identity: AgentIdentity) -> bytes:
    return f"skep registration\0{cell}\0{identity.node}\0{identity.host}\0{identity.process}".encode()


def _run(
    cell: CellUuid, identity: AgentIdentity, number: int, exchange_key: bytes, challenge: bytes, seen: Moment | None
) -> bytes:
    said = (cell, identity.node, identity.host, identity.process, number, exchange_key, challenge)
    return b"skep run\0" + msgspec.msgpack.encode(said if seen is None else (*said, seen))


def _next_key(cell: CellUuid, identity: AgentIdentity, key: bytes) -> bytes:
    return b"skep next key\0" + msgspec.msgpack.encode((cell, identity.node, identity.host, key))


def _report(cell: CellUuid, body: bytes) -> bytes:
    return f"skep report\0{cell}\0".encode() + body


def _digest(orders: Sequence[str], capabilities: Sequence[str] | None) -> bytes:
    said = msgspec.msgpack.encode((sorted(orders), None if capabilities is None else sorted(capabilities)))
    return hashlib.blake2b(said, digest_size=_DIGEST_BYTES).digest()


def _signed(public_key: bytes, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
