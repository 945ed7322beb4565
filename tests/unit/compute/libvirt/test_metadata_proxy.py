"""What guests get of the metadata service, and what of their requests it gets: without namespaces, by the loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import metadata
from skep.compute.drivers.libvirt.bridged.metadata import MetadataProxy, MetadataService
from skep.compute.drivers.libvirt.options import Options
from skep.contracts.eventually import eventually
from skep.domain.guest_documents.proof import proof
from skep.domain.host_networks import HostNetworks, PluggedPort, Segment

NETWORK, SERVER = "00000003-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000"
SECRET = "of agents and service"
GUEST = PluggedPort(
    id="p", server=SERVER, project="mine", mac_address="fa:16:3e:00:00:01", addresses=("127.0.0.1", "fd00::1")
)


def wanted(*ports: PluggedPort) -> HostNetworks:
    return HostNetworks(version="1", segments=(Segment(network=NETWORK, number=7, mtu=1400, ports=ports),))


class Network:
    """A network whose guest is the loopback, and the service that is asked."""

    def __init__(self, proxy: MetadataProxy, port: int, asked: list[bytes]) -> None:
        self.proxy = proxy
        self.port = port
        self.asked = asked
        """What the service was asked, as it came."""

    async def say(self, request: bytes) -> str:
        """Send a guest's request; return the whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        said = await reader.read()
        writer.close()
        return said.decode()

    async def status(self, request: bytes) -> int:
        return int((await self.say(request)).split()[1])


@asynccontextmanager
async def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> AsyncIterator[Network]:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    (tmp_path / f"sk-n-{NETWORK}").touch()
    bound = socket.create_server(("127.0.0.1", 0))
    # The kernel would take a whole answer: that of the loopback has room for more than that of a link of guests.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    monkeypatch.setattr(metadata, "SPACES", tmp_path)
    monkeypatch.setattr(metadata, "listen_within", lambda _space, _addresses: [bound])
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as service:
        at = service.sockets[0].getsockname()[1]
        proxy = MetadataProxy(MetadataService(url=f"http://127.0.0.1:{at}", secret=SECRET))
        await proxy.follow(wanted(GUEST))
        yield Network(proxy, bound.getsockname()[1], asked)
        proxy.close()


GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Inner: secret\r\nContent-Length: 2\r\n\r\n{}"


async def test_the_service_is_told_who_asks_and_nothing_else_of_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(tmp_path, monkeypatch, GOOD) as guests:
        lies = "X-Instance-ID: other\r\nx-tenant-id: other\r\nX-Forwarded-For: 10.0.0.9\r\nCookie: a\r\n"
        said = await guests.say(f"GET /openstack/latest/x?a=%2f HTTP/1.0\r\nHost: evil\r\n{lies}\r\n".encode())
        assert said == (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
        )
        [head] = guests.asked
        first, *lines = head.decode().strip().split("\r\n")
        assert first == "GET /openstack/latest/x?a=%2f HTTP/1.1"
        told = dict(line.lower().split(": ", 1) for line in lines)
        expected = {name.lower(): value for name, value in proof(SECRET, SERVER, "mine").items()}
        assert told.items() >= expected.items()
        assert told.keys() - expected.keys() == {"host", "accept", "accept-encoding", "connection", "user-agent"}
        assert "evil" not in head.decode()
        assert (await guests.say(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(
            "content-length: 2\r\nconnection: close\r\n\r\n"
        )
        assert await guests.status(b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n") == 200
        assert guests.asked[-1].startswith(b"GET /latest HTTP/1.1\r\n")
        told_password = b"POST /openstack/latest/password HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        assert await guests.status(told_password) == 200
        assert b"content-length: 3" in guests.asked[-1].lower()


async def test_what_is_no_request_for_a_document_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with network(tmp_path, monkeypatch, GOOD) as guests:
        for request, status in (
            (b"GET  / HTTP/1.1\r\n\r\n", 400),
            (b"GET x HTTP/1.1\r\n\r\n", 400),
            (b"GET /# HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            (b"PUT /latest/api/token HTTP/1.1\r\nHost: x\r\n\r\n", 405),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", 413),
            (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 12_000 + b"\r\n\r\n", 431),
        ):
            assert await guests.status(request) == status, request[:60]
        assert guests.asked == []


async def test_who_is_not_known_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with network(tmp_path, monkeypatch, GOOD) as guests:
        for ports in (
            (),
            (msgspec.structs.replace(GUEST, addresses=("10.0.0.1",)),),
            (msgspec.structs.replace(GUEST, project=""),),
        ):
            await guests.proxy.follow(wanted(*ports))
            assert await guests.status(request) == 404
        assert guests.asked == []
        await guests.proxy.follow(wanted(GUEST))
        assert await guests.status(request) == 200
        await guests.proxy.follow(HostNetworks(version="2"))
        with pytest.raises(ConnectionError):
            await guests.say(request)


async def test_a_guest_takes_no_more_than_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "SECONDS", 0.5)
    async with network(tmp_path, monkeypatch, GOOD) as guests:
        second = msgspec.structs.replace(GUEST, id="q", addresses=("127.0.0.2",))
        await guests.proxy.follow(wanted(GUEST, second))
        there = ("127.0.0.2", 0)
        silent = [
            await asyncio.open_connection("127.0.0.1", guests.port, local_addr=there)
            for _ in range(metadata.ASKED_AT_ONCE)
        ]
        assert await guests.status(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == 429
        for reader, writer in silent:
            assert await reader.read() == b"", "it was let go"
            writer.close()
        assert await guests.status(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == 200


async def test_a_guest_that_takes_no_answer_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "SECONDS", 0.5)
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 49000\r\n\r\n" + b"x" * 49_000
    async with network(tmp_path, monkeypatch, large) as guests:
        before = descriptors()
        with socket.socket() as guest:
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            guest.connect(("127.0.0.1", guests.port))
            guest.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

            async def let_go() -> bool:
                return bool(guests.asked) and descriptors() == before + 1

            await eventually(let_go, "the agent has let go of the connection", seconds=10)
        assert await guests.status(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n") == 200


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (metadata.MOST_OF_ANSWER + 1)]
)
async def test_a_service_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    async with network(tmp_path, monkeypatch, answer) as guests:
        said = await guests.say(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert "retry-after: 1\r\n" in said


async def test_a_network_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with network(tmp_path, monkeypatch, GOOD) as guests:
        other = msgspec.structs.replace(wanted(GUEST).segments[0], network=SERVER)
        both = msgspec.structs.replace(wanted(GUEST), segments=(other, *wanted(GUEST).segments))
        with pytest.raises(DriverError, match="metadata service"):
            await guests.proxy.follow(both)
        assert await guests.status(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == 200, "the other one goes on"


@pytest.mark.parametrize("url", ["ftp://x", "http://user@host", "http://host/path", "http://host?x", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="metadata_url"):
        msgspec.convert({"virt_type": "qemu", "metadata_url": url, "metadata_secret": SECRET}, Options)


def test_a_secret_that_is_too_short_is_refused_and_not_said() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"metadata_secret.*16") as refused:
        msgspec.convert({"virt_type": "qemu", "metadata_url": "http://host", "metadata_secret": "sesame"}, Options)
    assert "sesame" not in str(refused.value)
