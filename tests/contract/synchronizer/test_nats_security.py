"""The NATS backend and servers that want to be sure of who asks: TLS, client certificates, files that are of no use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.nats_security import NatsSecurity
from skep.config.sections import Config, SynchronizerSettings, TransportSettings
from skep.contracts.eventually import eventually
from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.servers.nats import NatsServer
from skep.processes.wiring import backend_of
from skep.synchronizer.base import CursorTooOld, Key, Published, Write
from skep.synchronizer.nats import NatsBackend, make
from tests.contract.transport.test_nats_opening import certificate


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


@pytest.mark.needs_part("nats-server")
async def test_records_are_written_and_followed_while_the_sign_in_is_replaced(tmp_path: Path) -> None:
    """The old user is refused in the end: whatever still needed it would fail."""
    file = tmp_path / "sign-in"
    file.write_text("skep:old")
    old, new = {"user": "skep", "password": "old"}, {"user": "skep_2", "password": "new"}
    async with NatsServer(tmp_path / "nats", config=_users(old)) as server:
        writer, reader = (make(settings(server.url, sign_in_file=str(file))) for _ in range(2))
        assert isinstance(writer, NatsBackend)
        assert isinstance(reader, NatsBackend)
        await writer.open()
        await reader.open()
        cursor = (await reader.snapshot()).cursor
        epoch = await writer.epoch()
        await _write(writer, b"1")
        server.reconfigure(_users(old, new))
        await eventually(lambda: _lets_in(server.url, "skep_2:new", tmp_path), "the new user is taken")
        before = [one._session._link for one in (writer, reader)]
        file.with_suffix(".new").write_text("skep_2:new")
        file.with_suffix(".new").replace(file)

        async def moved() -> bool:
            await _write(writer, b"2")
            links = [one._session._link for one in (writer, reader)]
            return not any(one in before for one in links) and not any(one and one.alive for one in before)

        await eventually(moved, "both have signed in anew, and the old connections are closed")
        server.reconfigure(_users(new))

        async def written() -> bool:
            """Whether the write went through: a reload may cut off a connection that is being made."""
            try:
                await _write(writer, b"3")
            except Unreachable:
                return False
            return True

        await eventually(written, "the writer writes by the new user alone")

        async def follows() -> bool:
            changes = await reader.changes(cursor, wait=1.0)
            return not isinstance(changes, CursorTooOld) and changes.records[0].body == b"3"

        await eventually(follows, "the reader follows")
        assert await writer.epoch() == epoch
        await writer.close()
        await reader.close()


@pytest.mark.needs_part("nats-server")
async def test_a_sign_in_that_the_server_takes_later_is_followed_then(tmp_path: Path) -> None:
    file = tmp_path / "sign-in"
    file.write_text("skep:old")
    old, new = {"user": "skep", "password": "old"}, {"user": "skep_2", "password": "new"}
    async with NatsServer(tmp_path / "nats", config=_users(old)) as server:
        backend = make(settings(server.url, sign_in_file=str(file)))
        assert isinstance(backend, NatsBackend)
        await backend.open()
        before = backend._session._link
        file.with_suffix(".new").write_text("skep_2:new")
        file.with_suffix(".new").replace(file)

        async def tried() -> bool:
            return backend._session.sign_ins.failures > 0

        async def followed() -> bool:
            return backend._session._link is not before

        await eventually(tried, "it was tried")
        assert backend._session._link is before
        server.reconfigure(_users(old, new))
        await eventually(followed, "it has signed in anew")
        assert backend._session.sign_ins.is_followed
        await _write(backend, b"2")
        await backend.close()


def _users(*users: dict[str, str]) -> str:
    return "authorization: " + json.dumps({"users": users})


async def _write(backend: NatsBackend, body: bytes) -> None:
    key = Key("hosts", "one")
    known = [record for record in (await backend.snapshot()).records if record.key == key]
    expected = known[0].generation if known else 0
    (outcome,) = await backend.publish((Write(key=key, expected=expected, body=body),))
    assert outcome == Published(expected + 1)


async def _lets_in(url: str, sign_in: str, folder: Path) -> bool:
    file = folder / "probe"
    file.write_text(sign_in)
    try:
        await opens(settings(url, sign_in_file=str(file)))
    except Unreachable:
        return False
    return True
