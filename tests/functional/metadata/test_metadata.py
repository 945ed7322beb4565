"""The metadata service over the databases of two cells."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import structlog

from skep.api.routes import ROUTES
from skep.contracts.eventually import eventually
from skep.domain.guest_documents import ec2, openstack
from skep.domain.guest_documents.facts import GuestFacts
from skep.domain.guest_documents.proof import signature
from skep.metadata import servers as of_servers
from skep.metadata.app import MAX_PASSWORD, MetadataApi
from skep.metadata.servers import Servers
from skep.neighbours.vendor_data import VendorDataTargets, VendorDataUnavailable
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test
from tests.support.public_keys import ssh_key

SECRET, FORMER = "of proxies and of the service", "what it was before"
SCRIPT = b"#!/bin/sh\nsesame\n"
PASSWORD_PATH = "/openstack/latest/password"


@dataclasses.dataclass
class Proxy:
    """Asks as the proxy in the network of servers does."""

    client: httpx.AsyncClient
    cloud: ServersUnderTest
    servers: Servers

    async def ask(
        self, server: str, path: str, *, method: str = "GET", project: str = PROJECT, secret: str = SECRET, **more: Any
    ) -> httpx.Response:
        headers = {
            "X-Instance-ID": server,
            "X-Tenant-ID": project,
            "X-Instance-ID-Signature": signature(secret, server),
            "X-Forwarded-For": "192.0.2.1",
        }
        return await self.client.request(method, path, headers=headers, **more)

    async def read(self, server: str, path: str, **more: Any) -> str:
        answer = await self.ask(server, path, **more)
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    def forget(self) -> None:
        """Let the next question be answered from the database."""
        self.servers._remembered.clear()


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    async with servers_under_test(tmp_path, routes=ROUTES) as cloud:
        services = cloud.services
        servers = Servers(
            database=services.database,
            cells=services.cells,
            clock=services.clock,
            remembered_seconds=3600.0,
            dhcp_domain="novalocal",
            vendor_data={"motd": "welcome"},
        )
        transport = httpx.ASGITransport(MetadataApi(servers, (SECRET, FORMER)), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://169.254.169.254") as client:
            yield Proxy(client, cloud, servers)


async def built(proxy: Proxy, cell: Any = CELL1, **more: Any) -> str:
    uuid = await proxy.cloud.create(**more)
    await proxy.cloud.build(uuid, cell)
    return uuid


async def test_servers_of_every_cell_read_about_themselves(proxy: Proxy) -> None:
    key = ssh_key("me@here")
    await proxy.cloud.good("POST", "/os-keypairs", {"keypair": {"name": "mine", "public_key": key}})
    user_data = base64.b64encode(SCRIPT).decode()
    for cell, name in ((CELL1, "first"), (CELL2, "second")):
        server = await built(proxy, cell, name=name, key_name="mine", user_data=user_data, metadata={"a": "b"})
        told = json.loads(await proxy.read(server, "/openstack/latest/meta_data.json"))
        assert (told["uuid"], told["name"], told["project_id"]) == (server, name, PROJECT)
        assert (told["meta"], told["public_keys"]) == ({"a": "b"}, {"mine": key})
        assert await proxy.read(server, "/openstack/latest/user_data") == SCRIPT.decode()
        assert await proxy.read(server, "/latest/meta-data/public-keys/0/openssh-key") == key
        assert json.loads(await proxy.read(server, "/openstack/latest/vendor_data.json")) == {"motd": "welcome"}
        seeds = {
            json.loads(await proxy.read(server, "/openstack/latest/meta_data.json"))["random_seed"] for _ in range(2)
        }
        assert len(seeds) == 2, "each answer has a seed of its own"
        for version in (*openstack.VERSIONS, openstack.LATEST):
            for document in (await proxy.read(server, f"/openstack/{version}/")).split("\n"):
                await proxy.read(server, f"/openstack/{version}/{document}")
        for version in (*ec2.VERSIONS, ec2.LATEST):
            await read_below(proxy, server, f"/{version}/")


async def read_below(proxy: Proxy, server: str, path: str) -> None:
    """Read all that a list names, and what is below."""
    for entry in (await proxy.read(server, path)).split("\n"):
        name = f"{entry.partition('=')[0]}/" if "=" in entry else entry
        if name.endswith("/"):
            await read_below(proxy, server, path + name)
        else:
            await proxy.read(server, path + name)


async def test_who_asks_has_to_be_proven(proxy: Proxy) -> None:
    server, theirs = await built(proxy), await built(proxy, token="other")
    path = "/openstack/latest/meta_data.json"
    good = {"X-Instance-ID": server, "X-Tenant-ID": PROJECT, "X-Instance-ID-Signature": signature(SECRET, server)}
    assert (await proxy.client.get(path, headers=good)).status_code == 200
    assert (await proxy.ask(server, path, secret=FORMER)).status_code == 200
    for name, value, status in (
        ("X-Instance-ID", None, 400),
        ("X-Instance-ID", "", 400),
        ("X-Instance-ID", f"{server},{theirs}", 400),
        ("X-Instance-ID", theirs, 403),
        ("X-Tenant-ID", None, 400),
        ("X-Tenant-ID", OTHER_PROJECT, 404),
        ("X-Instance-ID-Signature", None, 403),
        ("X-Instance-ID-Signature", "", 403),
        ("X-Instance-ID-Signature", signature("another secret", server), 403),
        ("X-Instance-ID-Signature", signature(SECRET, theirs), 403),
        ("X-Instance-ID-Signature", "\xe9", 403),
    ):
        raw = {key: text for key, text in {**good, name: value}.items() if text is not None}
        headers = [(key.encode(), text.encode("latin-1")) for key, text in raw.items()]
        for method in ("GET", "POST"):
            where = path if method == "GET" else PASSWORD_PATH
            answer = await proxy.client.request(method, where, headers=headers)
            assert answer.status_code == status, (name, value, answer.text)
    twice = [*good.items(), ("X-Instance-ID", server)]
    assert (await proxy.client.get(path, headers=twice)).status_code == 400
    assert (await proxy.client.get("/")).text.startswith("1.0\n2007-01-19\n")
    assert (await proxy.client.get("/openstack")).status_code == 400


async def test_servers_that_are_not_there(proxy: Proxy) -> None:
    path = "/openstack/latest/meta_data.json"
    waiting = await proxy.cloud.create()
    assert (await proxy.ask(waiting, path)).status_code == 404
    assert (await proxy.ask("no uuid", path)).status_code == 404
    server = await built(proxy)
    assert (await proxy.ask(server, path)).status_code == 200
    for absent in ("/openstack/2099-01-01", "/latest/meta-data/x", "/x", "/" + "a/" * 500, "/openstack/latest/%00"):
        assert (await proxy.ask(server, absent)).status_code == 404
    assert (await proxy.ask(server, path, method="POST")).status_code == 405
    assert (await proxy.ask(server, path, method="DELETE")).status_code == 405
    assert (await proxy.ask(server, path, method="HEAD")).status_code == 200


async def test_a_cell_that_does_not_answer(proxy: Proxy) -> None:
    server = await built(proxy, CELL2)
    proxy.servers.cells = {CELL1: proxy.cloud.services.cells[CELL1]}
    answer = await proxy.ask(server, "/openstack/latest/meta_data.json")
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)


async def test_a_password_is_told_once(proxy: Proxy) -> None:
    server = await built(proxy)
    tell = partial(proxy.ask, server, PASSWORD_PATH, method="POST")
    assert await proxy.read(server, PASSWORD_PATH) == ""
    for wrong in (b"x" * (MAX_PASSWORD + 1), b"\xff", b"a\0"):
        assert (await tell(content=wrong)).status_code == 400
    assert (await tell(content=b"x" * MAX_PASSWORD, project=OTHER_PROJECT)).status_code == 404
    assert (await tell(content=b"c2VzYW1l\n")).status_code == 200
    assert (await tell(content=b"b3RoZXI=")).status_code == 409
    assert await proxy.read(server, PASSWORD_PATH) == "c2VzYW1l\n"
    shown = await proxy.cloud.good("GET", f"/servers/{server}/os-server-password")
    assert shown == {"password": "c2VzYW1l\n"}
    assert (await proxy.cloud.ask("DELETE", f"/servers/{server}/os-server-password")).status_code == 204
    proxy.forget()
    assert await proxy.read(server, PASSWORD_PATH) == ""
    assert (await tell(content=b"x" * MAX_PASSWORD)).status_code == 200


async def test_a_server_that_asks_again_and_again_is_looked_up_once(proxy: Proxy) -> None:
    server = await built(proxy)
    await proxy.read(server, "/latest")
    proxy.servers.cells = {}
    await proxy.read(server, "/latest/meta-data/hostname")
    proxy.forget()
    assert (await proxy.ask(server, "/latest")).status_code == 503


class Vendors:
    """Services that answer when they are let, with nothing or not at all."""

    def __init__(self, *, fail: bool = False) -> None:
        self.asked = 0
        self.go = asyncio.Event()
        self._fail = fail

    async def of(self, _facts: GuestFacts) -> dict[str, Any]:
        self.asked += 1
        await self.go.wait()
        if self._fail:
            raise VendorDataUnavailable("The vendor data one cannot be had: it answered 500")
        return {}


def with_vendors(proxy: Proxy, vendors: Vendors) -> None:
    proxy.servers.vendors = cast(VendorDataTargets, vendors)


async def test_services_that_say_nothing_are_asked_once(proxy: Proxy) -> None:
    vendors = Vendors()
    with_vendors(proxy, vendors)
    server, path = await built(proxy), "/openstack/latest/vendor_data2.json"
    at_once = [asyncio.create_task(proxy.read(server, path)) for _ in range(3)]

    async def is_asked() -> bool:
        return vendors.asked > 0

    await eventually(is_asked, "the services are asked")
    at_once.pop().cancel()
    vendors.go.set()
    wanted = {"static": {"motd": "welcome"}}
    assert [json.loads(await one) for one in at_once] == [wanted] * 2
    for _ in range(2):
        assert (await proxy.ask(server, PASSWORD_PATH, method="POST", content=b"p")).status_code in (200, 409)
        assert json.loads(await proxy.read(server, path)) == wanted
    assert vendors.asked == 1
    await proxy.read(await built(proxy), path)
    assert vendors.asked == 2, "of each server"


async def test_services_that_fail_are_asked_again_after_a_moment(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    vendors = Vendors(fail=True)
    vendors.go.set()
    with_vendors(proxy, vendors)
    server, path = await built(proxy), "/openstack/latest/vendor_data2.json"
    assert [(await proxy.ask(server, path)).status_code for _ in range(3)] == [503] * 3
    assert vendors.asked == 1
    proxy.servers._told.clear()
    monkeypatch.setattr(of_servers, "FAILED_SECONDS", -1.0)
    assert [(await proxy.ask(server, path)).status_code for _ in range(2)] == [503] * 2
    assert vendors.asked == 3


async def test_no_secret_stands_in_a_log_line(proxy: Proxy) -> None:
    server = await built(proxy, user_data=base64.b64encode(SCRIPT).decode())
    with structlog.testing.capture_logs() as logged:
        await proxy.read(server, "/openstack/latest/user_data")
        await proxy.ask(server, PASSWORD_PATH, method="POST", content=b"sesame")
        await proxy.ask(server, "/latest", secret="sesame and more")
    assert len(logged) == 3
    text = repr(logged)
    assert "sesame" not in text
    assert SECRET not in text
    assert signature(SECRET, server) not in text
    assert "sesame" not in repr(proxy.servers)
