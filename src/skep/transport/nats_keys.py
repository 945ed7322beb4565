"""Keys of NATS in operator mode, and what they sign: JWTs of accounts and of users, credentials of users.

An operator or an account is known by a public key. Nobody has its private half: what counts is signed by *signing
keys*, which the JWTs of the operator and of the account name. So a signing key can be replaced while the account stays.
Signing keys and the keys of users follow from secrets of the installation. Key formats are those of
https://github.com/nats-io/nkeys, JWTs those of version 2 (https://docs.nats.io, "JWT"); tried with nats-server 2.9.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Kind = Literal["operator", "account", "user"]
Signing = Literal["operator", "account"]

_PREFIXES: Mapping[Kind, int] = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED_PREFIX = 18 << 3
_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT_LIMITS = {**_UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
_JETSTREAM_LIMITS = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
_OPERATOR = "skep"


class Keys:
    """The keys of an installation's NATS. The first secret signs; what the others signed is believed, too."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    @property
    def operators(self) -> tuple[str, ...]:
        """The public keys by which servers know who may sign accounts, the one that signs first."""
        return tuple(self._signers("operator", _OPERATOR))

    def account(self, name: str) -> str:
        """Return the public key that NATS servers know an account by."""
        return _identity("account", name)

    def user(self, name: str) -> str:
        """Return the public key that NATS servers know a user by."""
        return _public("user", self._of("user", name))

    def users(self, name: str) -> list[str]:
        """Return the public keys that a user has, or had before the secret was replaced."""
        return [_public("user", self._of("user", name, secret)) for secret in self._secrets]

    def operator_jwt(self, system_account: str, now: int) -> str:
        """Return what servers are told of the operator: who may sign accounts. `now`: seconds since the epoch."""
        about = {"sub": _identity("operator", _OPERATOR), "name": _OPERATOR, "iat": now}
        claims = {
            "type": "operator",
            "version": 2,
            "system_account": self.account(system_account),
            "signing_keys": self._signers("operator", _OPERATOR),
        }
        return self._signed("operator", _OPERATOR, about, claims)

    def account_jwt(self, name: str, claims: Mapping[str, Any], now: int, *, jetstream: bool = False) -> str:
        """Return the JWT of an account: what it exports and imports, whom it revokes, who may sign its users."""
        limits = {**_ACCOUNT_LIMITS, **(_JETSTREAM_LIMITS if jetstream else {})}
        about = {"sub": self.account(name), "name": name, "iat": now}
        whole = {
            "type": "account",
            "version": 2,
            "limits": limits,
            "signing_keys": self._signers("account", name),
            **claims,
        }
        return self._signed("operator", _OPERATOR, about, whole)

    def credentials(self, account: str, user: str, permissions: Mapping[str, Any], now: int, shown: str = "") -> str:
        """Return a file as NATS clients read it: the user's JWT and the seed of its key. `shown`: the user's name."""
        key = self._of("user", user)
        about = {"sub": _public("user", key), "name": shown or user, "iat": now}
        claims = {"type": "user", "version": 2, "issuer_account": self.account(account), **_UNLIMITED, **permissions}
        jwt = self._signed("account", account, about, claims)
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{_seed(key)}\n------END USER NKEY SEED------\n"
        )

    def _signers(self, kind: Signing, name: str) -> list[str]:
        return [_public(kind, self._of(kind, name, secret)) for secret in self._secrets]

    def _of(self, kind: Kind, name: str, secret: bytes | None = None) -> Ed25519PrivateKey:
        digest = hmac.new(secret or self._secrets[0], f"nats key {kind} {name}".encode(), hashlib.sha256).digest()
        return Ed25519PrivateKey.from_private_bytes(digest)

    def _signed(self, kind: Signing, name: str, about: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
        key = self._of(kind, name)
        said = {**about, "iss": _public(kind, key), "nats": claims}
        said["jti"] = _plain32(hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest())
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_plain64(json.dumps(head).encode())}.{_plain64(json.dumps(said).encode())}"
        return f"{text}.{_plain64(key.sign(text.encode()))}"


def _identity(kind: Signing, name: str) -> str:
    """Return a public key whose private half nobody has: it is a hash."""
    return _checked(bytes([_PREFIXES[kind]]) + hashlib.sha256(f"skep nats {kind} {name}".encode()).digest())


def _public(kind: Kind, key: Ed25519PrivateKey) -> str:
    return _checked(bytes([_PREFIXES[kind]]) + key.public_key().public_bytes_raw())


def _seed(key: Ed25519PrivateKey) -> str:
    user = _PREFIXES["user"]
    return _checked(bytes([_SEED_PREFIX | user >> 5, (user & 31) << 3]) + key.private_bytes_raw())


def _checked(raw: bytes) -> str:
    """Return a key in the form of nkeys: base32, with a CRC (XMODEM) behind it."""
    return _plain32(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little"))


def _plain32(raw: bytes) -> str:
    return base64.b32encode(raw).rstrip(b"=").decode()


def _plain64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
