"""Public keys for tests."""

from __future__ import annotations

import datetime
import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def ssh_key(comment: str = "") -> str:
    """Return an Ed25519 key as a line, another for each comment."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(comment.encode()).digest()).public_key()
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return f"{line} {comment}" if comment else line


def certificate() -> str:
    """Return a certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    begins = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=9999))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()
