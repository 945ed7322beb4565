"""The metadata service for guests in networks of their host, by real bridges and rules. Guests are namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.libvirt.bridged.metadata import MetadataService
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.domain.guest_documents.proof import proof
from skep.domain.host_networks import HostRouter, PluggedPort
from skep.domain.networking import AddressPair
from tests.functional.libvirt.test_bridged_networks import (
    INSIDE,
    LEGS,
    OPEN,
    OTHER,
    ROUTER,
    SERVICE,
    SUBNET,
    give_address,
    group,
    lease,
    port,
    segment,
    wanted,
)
from tests.support.bridged_hosts import PARTS, TRANSIT, BridgedHost, bridged_host
from tests.support.metadata_stub import URL

pytestmark = [*PARTS, pytest.mark.timeout(300)]

SECRET = "of agents and service"
OPTIONS = BridgeOptions(transit=TRANSIT, metadata=MetadataService(url=URL, secret=SECRET))
ASKING = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 80), float(sys.argv[3]), (sys.argv[2], 0)) as connection:
        connection.sendall(b"GET /latest HTTP/1.0\\r\\nX-Instance-ID: another\\r\\n\\r\\n")
        while piece := connection.recv(65536):
            print(piece.decode(), end="")
except OSError as error:
    print(error)
"""
WHO = tuple(name.lower() for name in proof("", "", ""))


def of(project: str, its: PluggedPort) -> PluggedPort:
    return msgspec.structs.replace(its, project=project)


def asks(host: BridgedHost, guest: str, source: str | None = None) -> dict[str, str]:
    """Return what the service was asked in the name of a guest; nothing where the guest has no answer."""
    seconds = "20" if source is None else "2"
    _, said = host.ask(sys.executable, "-c", ASKING, SERVICE, source or "", seconds, guest=guest)
    body = said.replace("\r", "").partition("\n\n")[2]
    return {} if not body.startswith("{") else json.loads(body)


def as_whom(host: BridgedHost, guest: str, source: str | None = None) -> dict[str, str]:
    said = asks(host, guest, source)
    return {name: value for name, value in said.items() if name in WHO}


def known_as(project: str, its: PluggedPort) -> dict[str, str]:
    return {name.lower(): value for name, value in proof(SECRET, its.server, project).items()}


@contextmanager
def service(host: BridgedHost) -> Iterator[None]:
    command = host.command(sys.executable, "-m", "tests.support.metadata_stub")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        try:
            yield
        finally:
            process.terminate()


def test_a_guest_asks_as_itself_only(tmp_path: Path) -> None:
    """In two networks with the same addresses, one without a router; also where a port may send as another."""
    mine, bare = of("mine", port(1, "10.7.0.11", OPEN)), port(2, "10.7.0.12", OPEN)
    paired = msgspec.structs.replace(port(3, "10.7.0.13", OPEN), allowed_address_pairs=(AddressPair("10.7.0.0/24"),))
    yours = of("yours", port(4, "10.7.0.11", OPEN))
    loose = msgspec.structs.replace(bare, port_security_enabled=False, groups=(), project="loose")
    other = msgspec.structs.replace(segment(yours, network=OTHER), subnets=(SUBNET,))
    router = HostRouter(id=ROUTER, legs=LEGS[:1])
    everything = wanted(segment(mine, loose, paired), other, groups=(group(OPEN),), routers=(router,))
    with bridged_host(tmp_path / "host", OPTIONS) as host, service(host):
        for its in (mine, loose, paired, yours):
            host.add_guest(its.host_name, its)
        host.make_so(everything)
        told = lease(host, "guest-1", tmp_path)
        assert f"{SERVICE}/32 0.0.0.0" in told["staticroutes"]
        for guest in ("guest-1", "guest-4"):
            host.run("ip", "address", "add", "10.7.0.11/24", "dev", "eth0", guest=guest)
            host.run("ip", "route", "add", SERVICE, "dev", "eth0", guest=guest)
        for its in (loose, paired):
            give_address(host, its.host_name, its.addresses[0], "10.7.0.1")
        with host.answering(everything):
            assert asks(host, "guest-1")["path"] == "/latest"
            assert as_whom(host, "guest-1") == known_as("mine", mine), "by the route that DHCP tells"
            assert as_whom(host, "guest-2") == known_as("loose", loose), "by its gateway"
            assert as_whom(host, "guest-4") == known_as("yours", yours), "without a router"
            assert as_whom(host, "guest-3") == {}, "its project is not known"
            # The one with that address is away, and forgotten.
            host.run("ip", "link", "set", "eth0", "down", guest="guest-1")
            for guest in ("guest-2", "guest-3"):
                host.run("ip", "neighbour", "flush", "dev", "svc", guest=f"sk-n-{INSIDE}")
                host.run("ip", "address", "add", "10.7.0.11/24", "dev", "eth0", guest=guest)
                assert as_whom(host, guest, "10.7.0.11") == {}, "it sends as another"
                host.run("ip", "address", "delete", "10.7.0.11/24", "dev", "eth0", guest=guest)
            host.run("ip", "link", "set", "eth0", "up", guest="guest-1")
            host.run("ip", "route", "add", SERVICE, "dev", "eth0", guest="guest-1")
        # While no agent is there guests hear that at once.
        assert as_whom(host, "guest-1") == {}
        with host.answering(everything):
            assert as_whom(host, "guest-1") == known_as("mine", mine), "it comes again with the agent"
