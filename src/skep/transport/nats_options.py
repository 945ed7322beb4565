"""How the settings of a transport become options of the NATS client: addresses, TLS, credentials.

Credentials are a file with a user's JWT and the seed of its key, as `nsc` writes it. The server sends a nonce and the
client signs it with Ed25519. (The client library would need one more package for that; the key formats are those of
https://github.com/nats-io/nkeys: base32 of prefix bytes, the key and a CRC.)
"""

from __future__ import annotations

import base64
import binascii
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from skep.config.sections import TransportSettings
from skep.domain.errors import Misconfigured

SEED_BYTES = slice(2, 34)
"""Where the key stands in a decoded seed, behind two prefix bytes and before two of the CRC."""


def servers(settings: TransportSettings) -> list[str]:
    """Return the addresses of the servers.

    Raises Misconfigured naming the setting when one is none.
    """
    found = [url.strip() for url in settings.url.split(",") if url.strip()]
    for url in found:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("nats", "tls") and bool(parts.hostname) and (parts.port or 4222) > 0
        except ValueError:
            good = False
        if not good:
            raise Misconfigured(f"transport.url: {_without_password(url)!r} is not like nats://HOST:PORT or tls://HOST")
    if not found:
        raise Misconfigured("transport.url: no address of a NATS server")
    return found


def wants_tls(settings: TransportSettings) -> bool:
    """Tell whether a server that speaks no TLS must be refused."""
    return bool(settings.ca_file or settings.cert_file) or any(url.startswith("tls://") for url in servers(settings))


def security(settings: TransportSettings) -> dict[str, Any]:
    """Return the client's options for TLS and credentials.

    Raises Misconfigured naming the setting when a file cannot be used.
    """
    options: dict[str, Any] = {}
    if wants_tls(settings):
        try:
            options["tls"] = ssl.create_default_context(cafile=settings.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"transport.ca_file: {settings.ca_file} cannot be used: {error}") from error
        if settings.cert_file:
            try:
                options["tls"].load_cert_chain(settings.cert_file, settings.key_file or None)
            except (OSError, ssl.SSLError) as error:
                where = f"{settings.cert_file}, {settings.key_file or 'the same file'}"
                raise Misconfigured(f"transport.cert_file, transport.key_file: {where}: {error}") from error
    if settings.credentials_file:
        jwt, key = read_credentials(Path(settings.credentials_file))
        options["user_jwt_cb"] = lambda: jwt
        options["signature_cb"] = lambda nonce: base64.b64encode(key.sign(nonce.encode()))
    return options


def read_credentials(path: Path) -> tuple[bytes, Ed25519PrivateKey]:
    """Return the JWT and the key of a credentials file.

    Raises Misconfigured when it cannot be read or is none; the text never shows what stands in it.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
        jwt = lines[_behind(lines, "BEGIN NATS USER JWT")]
        seed = lines[_behind(lines, "BEGIN USER NKEY SEED")]
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        return jwt.encode(), Ed25519PrivateKey.from_private_bytes(raw[SEED_BYTES])
    except OSError as error:
        raise Misconfigured(f"transport.credentials_file: {path} cannot be read: {error.strerror}") from error
    except (ValueError, IndexError, binascii.Error):
        raise Misconfigured(f"transport.credentials_file: {path} holds no NATS credentials") from None


def _behind(lines: list[str], mark: str) -> int:
    """Return the index of the line after the mark; one behind all lines when there is none."""
    return next((number for number, line in enumerate(lines, 1) if mark in line), len(lines))


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]
