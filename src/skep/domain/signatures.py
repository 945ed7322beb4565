"""How an agent signs what it says of its host: Ed25519 (RFC 8032), each kind of statement with a beginning of its own.

The cell stands in what is signed, so that nothing said in one cell can be told in another.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CellUuid

PUBLIC_KEY_BYTES = 32


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

    def report(self, body: bytes) -> bytes:
        """Return the signature of an encoded report."""
        return self._key.sign(_report(self._cell, body))


def signed_registration(public_key: bytes, cell: CellUuid, identity: AgentIdentity, signature: bytes) -> bool:
    """Tell whether who has the private half of this key signed the registration."""
    return _signed(public_key, signature, _registration(cell, identity))


def signed_report(public_key: bytes, cell: CellUuid, body: bytes, signature: bytes) -> bool:
    """Tell whether who has the private half of this key signed the encoded report."""
    return _signed(public_key, signature, _report(cell, body))


def _registration(cell: CellUuid, identity: AgentIdentity) -> bytes:
    return f"skep registration\0{cell}\0{identity.node}\0{identity.host}\0{identity.process}".encode()


def _report(cell: CellUuid, body: bytes) -> bytes:
    return f"skep report\0{cell}\0".encode() + body


def _signed(public_key: bytes, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
