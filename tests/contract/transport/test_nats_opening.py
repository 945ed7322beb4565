"""What a transport says that cannot connect, and with what credentials it can."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from skep.config.sections import TransportSettings
from skep.contracts.transport_server import QUESTION, Server
from skep.domain.errors import Misconfigured, SkepError, Unreachable
from skep.messages.to_cell_conductor import Permission
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Address
from skep.transport.nats import NatsTransport

HERE = Address("cell.c.conductor")


async def opening(expected: type[SkepError], match: str, **settings: Any) -> None:
    transport = NatsTransport(TransportSettings(kind="nats", **settings))
    with pytest.raises(expected, match=match):
        await transport.open()
    await transport.close()


async def works(**settings: Any) -> None:
    transport, server = NatsTransport(TransportSettings(kind="nats", **settings)), Server()
    await transport.open()
    try:
        await transport.serve(HERE, server.handlers)
        assert await transport.call(HERE, QUESTION) == Permission(granted=True)
    finally:
        await transport.close()


async def test_nobody_is_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        await opening(
            Unreachable, f"no NATS server answers at 127.0.0.1:{port}: .*Connect", url=f"nats://127.0.0.1:{port}"
        )


@pytest.mark.parametrize("url", ["", " , ", "http://127.0.0.1:4222", "nats://", "nats://h:99999", "127.0.0.1:4222"])
async def test_an_address_that_is_none(url: str) -> None:
    await opening(Misconfigured, r"transport\.url: ", url=url)


async def test_a_wrong_address_is_said_without_its_password() -> None:
    with pytest.raises(Misconfigured) as raised:
        await NatsTransport(TransportSettings(kind="nats", url="http://skep:secret@host:1")).open()
    assert "secret" not in str(raised.value)


async def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    absent, empty = tmp_path / "absent", tmp_path / "empty"
    empty.write_text("nothing")
    await opening(Misconfigured, r"transport\.credentials_file: .* cannot be read", credentials_file=str(absent))
    await opening(Misconfigured, r"transport\.credentials_file: .* holds no", credentials_file=str(empty))
    await opening(Misconfigured, r"transport\.ca_file: .* cannot be used", ca_file=str(absent))
    await opening(Misconfigured, r"transport\.ca_file: .* cannot be used", ca_file=str(empty))


@pytest.mark.needs_part("nats-server")
class TestWithAServer:
    async def test_the_second_of_two_addresses_is_there(self, tmp_path: Path) -> None:
        async with NatsServer(tmp_path, jetstream=False) as server:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                await works(url=f"nats://127.0.0.1:{free.getsockname()[1]}, {server.url}")

    async def test_a_server_without_tls_is_refused_where_tls_is_wanted(self, tmp_path: Path) -> None:
        async with NatsServer(tmp_path, jetstream=False) as server:
            url = server.url.replace("nats://", "tls://")
            await opening(Misconfigured, "does not speak TLS", url=url)

    async def test_tls(self, tmp_path: Path) -> None:
        ca, other, stranger = tmp_path / "ca.pem", tmp_path / "other.pem", "host.example.org"
        key = certificate(ca, tmp_path / "key.pem", "127.0.0.1")
        certificate(other, tmp_path / "other-key.pem", "127.0.0.1")
        tls = f'tls {{ cert_file: "{ca}", key_file: "{key}" }}'
        async with NatsServer(tmp_path / "tls", jetstream=False, config=tls) as server:
            await works(url=server.url, ca_file=str(ca))
            await works(url=server.url.replace("nats://", "tls://"), ca_file=str(ca))
            await opening(Unreachable, "certificate verify failed", url=server.url, ca_file=str(other))
            await opening(Unreachable, "certificate verify failed", url=server.url)
        key = certificate(ca, tmp_path / "key.pem", stranger)
        async with NatsServer(tmp_path / "stranger", jetstream=False, config=tls) as server:
            await opening(Unreachable, "certificate verify failed", url=server.url, ca_file=str(ca))

    async def test_passwords(self, tmp_path: Path) -> None:
        users = "authorization { user: skep, password: right }"
        async with NatsServer(tmp_path, jetstream=False, config=users) as server:
            await works(url=server.url.replace("//", "//skep:right@"))
            await opening(Misconfigured, "refuses our credentials", url=server.url.replace("//", "//skep:wrong@"))
            await opening(Misconfigured, "refuses our credentials", url=server.url)

    async def test_a_credentials_file(self, tmp_path: Path) -> None:
        operator, account, user, other = (Ed25519PrivateKey.generate() for _ in range(4))
        config = (
            f"operator: {token(operator, operator, 'O', 'O', 'operator', {})}\n"
            "resolver: MEMORY\n"
            f"resolver_preload: {{ {public(account, 'A')}: {token(operator, account, 'O', 'A', 'account', LIMITS)} }}"
        )
        async with NatsServer(tmp_path, jetstream=False, config=config) as server:
            jwt = token(account, user, "A", "U", "user", {"subs": -1, "data": -1, "payload": -1})
            right, wrong = tmp_path / "right.creds", tmp_path / "wrong.creds"
            right.write_text(credentials(jwt, user))
            wrong.write_text(credentials(jwt, other))
            await works(url=server.url, credentials_file=str(right))
            await opening(Misconfigured, "refuses our credentials", url=server.url, credentials_file=str(wrong))


def certificate(path: Path, key_path: Path, name: str) -> Path:
    """Write a certificate that signs itself, for an address or a host's name, and its key; return where the key is."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if name[0].isdigit():
        names = [x509.IPAddress(ipaddress.ip_address(name))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(made.public_bytes(Encoding.PEM))
    key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key_path


LIMITS = {"limits": {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1}}
PREFIXES = {"O": 14 << 3, "A": 0, "U": 20 << 3}
"""First byte of a public key, so that its base32 form begins with the letter of its kind."""
SEED = 18 << 3


def crc16(data: bytes) -> int:
    """Return CRC-16/XMODEM."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def base32(data: bytes) -> str:
    return base64.b32encode(data + crc16(data).to_bytes(2, "little")).decode().rstrip("=")


def public(key: Ed25519PrivateKey, kind: str) -> str:
    return base32(bytes([PREFIXES[kind]]) + key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def seed(key: Ed25519PrivateKey, kind: str) -> str:
    prefix = PREFIXES[kind]
    return base32(bytes([SEED | prefix >> 5, (prefix & 31) << 3]) + key.private_bytes_raw())


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def token(
    issuer: Ed25519PrivateKey, subject: Ed25519PrivateKey, by: str, of: str, kind: str, claims: dict[str, Any]
) -> str:
    """Return a NATS JWT (version 2): who may do what, signed by the level above."""
    body: dict[str, Any] = {
        "iat": 1700000000,
        "iss": public(issuer, by),
        "name": kind,
        "sub": public(subject, of),
        "nats": {**claims, "type": kind, "version": 2},
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    head = base64url(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signed = f"{head}.{base64url(json.dumps(body).encode())}"
    return f"{signed}.{base64url(issuer.sign(signed.encode()))}"


def credentials(jwt: str, user: Ed25519PrivateKey) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed(user, 'U')}\n------END USER NKEY SEED------\n"
    )
