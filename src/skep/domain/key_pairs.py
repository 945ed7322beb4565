"""Key pairs of users: what signs in to a server (`ssh`), or what a Windows server knows its user by (`x509`)."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

KeyType: TypeAlias = Literal["ssh", "x509"]


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """The public half of a key pair. A server keeps a copy: it has its key also when its user deletes the pair."""

    name: str
    type: KeyType = "ssh"
    public_key: str
    """A line of OpenSSH's public key format; of `x509` a certificate as PEM."""
    fingerprint: str
    """MD5 of the key (`ssh`) or SHA-1 of the certificate, as pairs of hex digits with colons between them."""
