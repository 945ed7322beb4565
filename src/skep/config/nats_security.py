"""How a section says by what it is secured towards NATS, and how that becomes options of the NATS client.

Credentials are a file with a user's JWT and the seed of its key, as `nsc` writes it. The server sends a nonce and the
client signs it with Ed25519. (The client library would need one more package for that; the key formats are those of
https://github.com/nats-io/nkeys: base32 of prefix bytes, the key and a CRC.)
"""

from __future__ import annotations

import base64
import binascii
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from skep.config.authorities import authorities
from skep.config.base import Section
from skep.domain.errors import Misconfigured

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES = slice(2, 34)
"""Where the key stands in a decoded seed, behind two prefix bytes and before two of the CRC."""


class NatsSecurity(Section, frozen=True, kw_only=True):
    """The files of a section that reaches NATS servers."""

    credentials_file: Annotated[str, Meta(description="NATS credentials (JWT and key); empty: none")] = ""
    sign_in_file: Annotated[
        str,
        Meta(description="File with USER:PASSWORD for NATS, in place of those in the addresses; empty: none"),
    ] = ""
    ca_file: Annotated[str, Meta(description="CA that signed the NATS server's certificate; empty: the system's")] = ""
    cert_file: Annotated[str, Meta(description="Our certificate, for a NATS server that asks for one; empty: none")] = (
        ""
    )
    key_file: Annotated[str, Meta(description="Key of Skep's certificate; empty: it is in `cert_file`")] = ""

    def wants_tls(self, urls: list[str]) -> bool:
        """Tell whether a server that speaks no TLS must be refused."""
        return bool(self.ca_file or self.cert_file) or any(url.startswith("tls://") for url in urls)

    def options(self, section: str, urls: list[str]) -> dict[str, Any]:
        """Return the client's options for TLS and credentials.

        Raises Misconfigured naming the setting of `section` when a file cannot be used.
        """
        options: dict[str, Any] = {}
        if self.wants_tls(urls):
            options["tls"] = self._tls(section)
        if self.credentials_file:
            options |= _sign_in(*_read_credentials(Path(self.credentials_file), section))
        if self.sign_in_file:
            options |= _read_sign_in(Path(self.sign_in_file), section)
        return options

    @property
    def sign_in_version(self) -> tuple[tuple[int, int], ...]:
        """The version of the files with the sign-in. It changes when one is replaced; an absent file has none."""
        versions = (_version(Path(name)) for name in (self.credentials_file, self.sign_in_file) if name)
        return tuple(version for version in versions if version is not None)

    def _tls(self, section: str) -> ssl.SSLContext:
        context = authorities(self.ca_file, f"{section}.ca_file")
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file or None)
            except (OSError, ssl.SSLError) as error:
                where = f"{self.cert_file}, {self.key_file or 'the same file'}"
                raise Misconfigured(f"{section}.cert_file, {section}.key_file: {where}: {error}") from error
        return context


def signed_in_by(credentials: str) -> dict[str, Any]:
    """Return the client's options for credentials that stand in no file. Raises ValueError for what is none."""
    return _sign_in(*_parsed(credentials))


def _sign_in(jwt: bytes, key: Ed25519PrivateKey) -> dict[str, Any]:
    return {
        "user_jwt_cb": lambda: jwt,
        "signature_cb": lambda nonce: base64.b64encode(key.sign(nonce.encode())),
    }


def _read_credentials(path: Path, section: str) -> tuple[bytes, Ed25519PrivateKey]:
    """Return the JWT and the key of a credentials file.

    Raises Misconfigured when it cannot be read or is none; the text never shows what stands in it.
    """
    try:
        return _parsed(path.read_text(encoding="ascii"))
    except OSError as error:
        raise Misconfigured(f"{section}.credentials_file: {path} cannot be read: {error.strerror}") from error
    except (ValueError, binascii.Error):
        raise Misconfigured(f"{section}.credentials_file: {path} holds no NATS credentials") from None


def _read_sign_in(path: Path, section: str) -> dict[str, Any]:
    """Return the client's options for the user and password in a file.

    Raises Misconfigured when it cannot be read or holds none; the text never shows what stands in it.
    """
    try:
        user, colon, password = path.read_text(encoding="utf-8").strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misconfigured(f"{section}.sign_in_file: {path} cannot be read: {reason}") from error
    if not (user and colon and password) or len(password.splitlines()) != 1:
        raise Misconfigured(f"{section}.sign_in_file: {path} holds no sign-in, expected one line USER:PASSWORD")
    return {"user": user, "password": password}


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _parsed(text: str) -> tuple[bytes, Ed25519PrivateKey]:
    # Loaded only where there are credentials.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    lines = [line.strip() for line in text.splitlines()]
    try:
        jwt = lines[_behind(lines, "BEGIN NATS USER JWT")]
        seed = lines[_behind(lines, "BEGIN USER NKEY SEED")]
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        return jwt.encode(), Ed25519PrivateKey.from_private_bytes(raw[SEED_BYTES])
    except IndexError:
        raise ValueError("no credentials") from None


def _behind(lines: list[str], mark: str) -> int:
    """Return the index of the line after the mark; one behind all lines when there is none."""
    return next((number for number, line in enumerate(lines, 1) if mark in line), len(lines))
