"""What one run of an agent and the conductors of its cell share: a key for each direction, made at registration.

The agent brings a fresh X25519 key (RFC 7748), which its host's key signs, and the cell has one that all of its
conductors know; each side derives the keys of the session by itself (HKDF, RFC 5869). Whatever is said afterwards is
sealed and authenticated at once by ChaCha20-Poly1305 (RFC 8439): a few microseconds, and no public-key operation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CellUuid

EXCHANGE_KEY_BYTES = 32
MARK_BYTES = 8
"""Of the mark by which one run of a conductor is known in a session."""
REMEMBERED_NUMBERS = 64
"""How far a message may be overtaken by later ones and still be taken."""

_NONCE_BYTES = 12


def new_exchange_key() -> bytes:
    """Return the private half of a new X25519 key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_half(private: bytes) -> bytes:
    """Return the public half of a X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def new_mark() -> bytes:
    """Return a mark of one run of a conductor."""
    return os.urandom(MARK_BYTES)


class Session:
    """The keys of one session. `header` is what goes along in clear and has to be what was sealed with it."""

    def __init__(self, private: bytes, public: bytes, cell: CellUuid, identity: AgentIdentity) -> None:
        """Take the own half and the other side's. Raises ValueError for what is no key."""
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
        about = msgspec.msgpack.encode(("skep session", cell, identity.node, identity.host, identity.process))
        keys = HKDF(algorithm=SHA256(), length=64, salt=None, info=about).derive(shared)
        self._from_agent = ChaCha20Poly1305(keys[:32])
        self._to_agent = ChaCha20Poly1305(keys[32:])

    def seal_from_agent(self, number: int, header: tuple[object, ...], content: bytes) -> bytes:
        """Seal a message of the agent; it uses each number once."""
        return self._from_agent.encrypt(_counted(number), content, _encoded(header))

    def open_from_agent(self, number: int, header: tuple[object, ...], sealed: bytes) -> bytes | None:
        """Return what the agent said; None when it was not sealed in this session with this header."""
        try:
            return self._from_agent.decrypt(_counted(number), sealed, _encoded(header))
        except (InvalidTag, ValueError, OverflowError):
            return None

    def seal_to_agent(self, header: tuple[object, ...], content: bytes) -> bytes:
        """Seal a message of a conductor."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._to_agent.encrypt(nonce, content, _encoded(header))

    def open_to_agent(self, header: tuple[object, ...], sealed: bytes) -> bytes | None:
        """Return what a conductor said; None when it was not sealed in this session with this header."""
        try:
            return self._to_agent.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _encoded(header))
        except (InvalidTag, ValueError):
            return None


def seal_to_run(public: bytes, about: tuple[object, ...], content: bytes) -> bytes:
    """Seal something for the one run of an agent that brought this X25519 key. Raises ValueError for what is no key.

    `about` names the content, and the receiver has to know it.
    """
    own = X25519PrivateKey.generate()
    mine = own.public_key().public_bytes_raw()
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    # The key is used once, so any nonce will do.
    return mine + ChaCha20Poly1305(_key_to_run(shared, mine, public)).encrypt(
        bytes(_NONCE_BYTES), content, _encoded(about)
    )


def open_by_run(private: bytes, about: tuple[object, ...], sealed: bytes) -> bytes | None:
    """Return what was sealed for the run with this key; None when it was for another one, or about something else."""
    theirs, content = sealed[:EXCHANGE_KEY_BYTES], sealed[EXCHANGE_KEY_BYTES:]
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(theirs))
        key = _key_to_run(shared, theirs, public_half(private))
        return ChaCha20Poly1305(key).decrypt(bytes(_NONCE_BYTES), content, _encoded(about))
    except (InvalidTag, ValueError):
        return None


def contents_label(instance: str, attempt: int, task_id: str) -> tuple[object, ...]:
    """Return what `seal_to_run` is told of the password and files of a guest; of an action's with its task."""
    build = ("contents", instance, attempt)
    return (*build, task_id) if task_id else build


def connections_label(instance: str, attempt: int) -> tuple[object, ...]:
    """Return what `seal_to_run` is told of how a host reaches the volumes of a server."""
    return ("connections", instance, attempt)


def disks_label(move: str, question: str) -> tuple[object, ...]:
    """Return what `seal_to_run` is told of the door through which the target of a cold move gets the disks."""
    return ("disks", move, question)


def _key_to_run(shared: bytes, theirs: bytes, public: bytes) -> bytes:
    about = msgspec.msgpack.encode(("skep to a run", theirs, public))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=about).derive(shared)


@dataclass(slots=True)
class Numbers:
    """Which numbers of one speaker were taken: each is taken once, and none that is far behind the highest."""

    highest: int = 0
    _taken: int = 0
    """A bit for each of the latest numbers, the lowest bit for the highest number."""

    def take(self, number: int) -> bool:
        """Take a number; tell whether it is new."""
        behind = self.highest - number
        if behind < 0:
            window = (1 << REMEMBERED_NUMBERS) - 1
            self._taken = ((self._taken << min(-behind, REMEMBERED_NUMBERS)) | 1) & window
            self.highest = number
            return True
        if behind >= REMEMBERED_NUMBERS or self._taken >> behind & 1:
            return False
        self._taken |= 1 << behind
        return True


def _counted(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")


def _encoded(header: tuple[object, ...]) -> bytes:
    return msgspec.msgpack.encode(header)
