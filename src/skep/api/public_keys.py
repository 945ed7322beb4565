"""Public keys that users bring, and key pairs that are generated for them, in the forms of Nova's key pairs."""

from __future__ import annotations

import base64
import datetime
import hashlib
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from skep.domain.key_pairs import KeyType

MAX_PUBLIC_KEY = 16_384
"""Characters. An RSA key of 16,384 bits has 2,800."""
EXPECTED = {"ssh": "a public key in OpenSSH's format (`ssh-ed25519 AAAA... comment`)", "x509": "a certificate as PEM"}
RSA_BITS = 2048
DAYS = 3650
"""For which a generated certificate is valid."""
_COMMENT = "Generated-by-Nova"
"""What Nova writes behind the keys that it generates."""
_PRINCIPAL_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
"""Microsoft's User Principal Name, by which WinRM knows the user of a certificate."""
_MAX_COMMON_NAME = 64
"""Characters (RFC 5280, ub-common-name)."""


class Generated(NamedTuple):
    """A new key pair; only its user ever has the private key."""

    public_key: str
    private_key: str
    """PEM; of `x509` a PKCS #12 archive without a password, as base64."""


def fingerprint(kind: KeyType, public_key: str) -> str | None:
    """Return the fingerprint of a public key; None for a text that is none."""
    try:
        return _of_ssh(public_key) if kind == "ssh" else _of_x509(public_key)
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm):
        return None


def _of_ssh(public_key: str) -> str:
    load_ssh_public_key(public_key.encode())
    digest = hashlib.md5(base64.b64decode(public_key.split()[1]), usedforsecurity=False)
    return _with_colons(digest.digest())


def _of_x509(public_key: str) -> str:
    certificate = x509.load_pem_x509_certificate(public_key.encode())
    return _with_colons(certificate.fingerprint(hashes.SHA1()))  # noqa: S303 - a name of the key, no proof


def _with_colons(digest: bytes) -> str:
    return digest.hex(":")


def generate(kind: KeyType, user_id: str, now: int) -> Generated:
    """Generate a key pair; takes some tenths of a second of a processor. `now`: microseconds since the epoch."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    if kind == "x509":
        return _certified(key, user_id, now)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    return Generated(f"{public} {_COMMENT}", private)


def _certified(key: rsa.RSAPrivateKey, user_id: str, now: int) -> Generated:
    """Return a key with a certificate for the client of WinRM, signed by itself."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, user_id[:_MAX_COMMON_NAME])])
    begins = datetime.datetime.fromtimestamp(now // 1_000_000, datetime.UTC)
    principal = x509.OtherName(_PRINCIPAL_NAME, _utf8_string(f"{user_id[:_MAX_COMMON_NAME]}@localhost"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=DAYS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([principal]), critical=False)
        .sign(key, hashes.SHA256())
    )
    archive = pkcs12.serialize_key_and_certificates(None, key, certificate, None, NoEncryption())
    return Generated(certificate.public_bytes(Encoding.PEM).decode(), base64.b64encode(archive).decode())


def _utf8_string(text: str) -> bytes:
    """Return DER of a UTF8String of fewer than 16,384 bytes."""
    content = text.encode()
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x82, size >> 8, size & 0xFF])
    return b"\x0c" + length + content
