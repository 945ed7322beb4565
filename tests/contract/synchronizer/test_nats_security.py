"""The NATS backend and servers that want to be sure of who asks: TLS, client certificates, files that are of no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.contract.transport.test_nats_opening import certificate

from skep.config.nats_security import NatsSecurity
from skep.config.sections import Config, SynchronizerSettings, TransportSettings
from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.servers.nats import NatsServer
from skep.processes.wiring import backend_of
from skep.synchronizer.nats import NatsBackend, make


def settings(url: str, **files: str) -> SynchronizerSettings:
    return SynchronizerSettings(backend="nats", url=url, expected_hosts=10, **files)


async def opens(one: SynchronizerSettings) -> None:
    backend = make(one)
    await backend.open()
    await backend.close()


async def refuses(kind: type[Exception], match: str, one: SynchronizerSettings) -> None:
    backend = make(one)
    with pytest.raises(kind, match=match):
        await backend.open()
    await backend.close()


@pytest.mark.needs_part("nats-server")
async def test_a_server_shows_a_certificate_and_asks_for_ours(tmp_path: Path) -> None:
    cert, other = tmp_path / "cert.pem", tmp_path / "other.pem"
    key = certificate(cert, tmp_path / "key.pem", "127.0.0.1")
    other_key = certificate(other, tmp_path / "other-key.pem", "127.0.0.1")
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{cert}", verify: true }}'
    ours = {"ca_file": str(cert), "cert_file": str(cert), "key_file": str(key)}
    async with NatsServer(tmp_path / "nats", config=tls) as server:
        await opens(settings(server.url, **ours))
        await opens(settings(server.url.replace("nats://", "tls://"), **ours))
        await refuses(Unreachable, "certificate verify failed", settings(server.url, ca_file=str(other)))
        stranger = {**ours, "cert_file": str(other), "key_file": str(other_key)}
        await refuses(Unreachable, "NATS does not answer", settings(server.url, **stranger))


@pytest.mark.needs_part("nats-server")
async def test_a_server_without_tls_is_refused_where_tls_is_wanted(tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        await refuses(Misconfigured, "does not speak TLS", settings(server.url.replace("nats://", "tls://")))


async def test_files_that_cannot_be_used_are_named_with_their_section(tmp_path: Path) -> None:
    url, absent = "nats://127.0.0.1:1", str(tmp_path / "absent")
    await refuses(Misconfigured, r"synchronizer\.ca_file: .* cannot be used", settings(url, ca_file=absent))
    credentials = settings(url, credentials_file=absent)
    await refuses(Misconfigured, r"synchronizer\.credentials_file: .* cannot be read", credentials)


def test_the_files_of_the_transport_serve_on_the_same_servers_only() -> None:
    transport = TransportSettings(kind="nats", url="tls://a:1@one:4222, tls://two:4222", ca_file="ca.pem")

    def used(one: SynchronizerSettings) -> NatsSecurity:
        backend = backend_of(replace(Config(), transport=transport, synchronizer=one))
        assert isinstance(backend, NatsBackend)
        return backend.security

    assert used(settings("tls://b:2@two:4222,tls://one:4222?replicas=3")).ca_file == "ca.pem"
    assert used(settings("nats://three:4222")).ca_file == ""
    assert used(settings("tls://one:4222,tls://two:4222", ca_file="mine.pem")).ca_file == "mine.pem"
