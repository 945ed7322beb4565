"""An interface that is attached: its port and the row of its server, whatever happens between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.handlers import server_interfaces
from skep.api.handlers.server_actions import carry_out
from skep.database.cell import interfaces
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif
from skep.neighbours.networks.absent import NoNetworks
from skep.neighbours.networks.base import WantedInterface
from skep_lab.compute_api.servers import CELL1, ServersUnderTest, servers_under_test

VIF = Vif(id="port-1", mac_address="fa:16:3e:00:00:01", network_id="n", network_name="private", mtu=1450)


async def _nothing() -> None:
    return None


class OnePort(NoNetworks):
    """Gives one port, and does something before it says so."""

    def __init__(self) -> None:
        self.server: InstanceUuid | None = None
        self.meanwhile: Callable[[], Awaitable[object]] = _nothing
        self.detaching: Exception | None = None

    async def attach(self, wanted: WantedInterface, _context: RequestContext, _token: str) -> Vif:
        self.server = wanted.instance
        await self._something()
        return VIF

    async def detach(self, instance: InstanceUuid, port_id: str, _context: RequestContext, _token: str) -> None:
        if (instance, port_id) != (self.server, VIF.id):
            raise NotFound("no such port")
        if self.detaching is not None:
            raise self.detaching
        self.server = None
        await self._something()

    async def _something(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, _nothing
        await meanwhile()


async def attach(cloud: ServersUnderTest, server: str) -> int:
    path = f"/servers/{server}/os-interface"
    answer = await cloud.ask("POST", path, {"interfaceAttachment": {}}, version=104)
    return int(answer.status_code)


async def built(cloud: ServersUnderTest) -> str:
    server = await cloud.create()
    await cloud.build(server)
    return server


async def test_a_port_goes_when_the_row_does_not_take_it(tmp_path: Path) -> None:
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        for action in ("lock", "suspend"):
            server = await built(cloud)

            async def begins(server: str = server, action: str = action) -> None:
                await cloud.good("POST", f"/servers/{server}/action", {action: None}, token="admin")

            ports.meanwhile = begins
            assert await attach(cloud, server) == 409
            assert ports.server is None
            shown = await cloud.good("GET", f"/servers/{server}/os-interface")
            assert shown == {"interfaceAttachments": []}


async def test_what_was_wrong_is_said_where_the_port_cannot_go_either(tmp_path: Path) -> None:
    """The port is the server's then, and its row is told of it later."""
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        ports.detaching = Unavailable("the network service does not answer")

        async def locks() -> None:
            await cloud.good("POST", f"/servers/{server}/action", {"lock": None}, token="admin")

        ports.meanwhile = locks
        assert await attach(cloud, server) == 409
        assert ports.server == server


async def detach(cloud: ServersUnderTest, server: str) -> int:
    return int((await cloud.ask("DELETE", f"/servers/{server}/os-interface/{VIF.id}")).status_code)


async def listed(cloud: ServersUnderTest, server: str) -> list[str]:
    shown = await cloud.good("GET", f"/servers/{server}/os-interface")
    return [one["port_id"] for one in shown["interfaceAttachments"]]


async def records(cloud: ServersUnderTest, server: str) -> list[str]:
    shown = await cloud.good("GET", f"/servers/{server}/os-instance-actions", version=104)
    return [one["action"] for one in shown["instanceActions"]]


@pytest.mark.parametrize("action", ["lock", "pause", "os-stop"])
async def test_what_begins_before_the_row_decides_leaves_the_port_with_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        assert await attach(cloud, server) == 200

        async def later(*asked: Any) -> bool:
            await cloud.good("POST", f"/servers/{server}/action", {action: None}, token="admin")
            return await carry_out(*asked)

        monkeypatch.setattr(server_interfaces, "carry_out", later)
        assert await detach(cloud, server) == 409
        assert (ports.server, await listed(cloud, server)) == (server, [VIF.id])
        assert "detach_interface" not in await records(cloud, server)


@pytest.mark.parametrize("action", ["lock", "pause", "os-stop"])
async def test_what_begins_after_the_row_has_decided_keeps_no_port(tmp_path: Path, action: str) -> None:
    """The row says so before the port goes: no other server can have it meanwhile."""
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        assert await attach(cloud, server) == 200
        seen: list[list[str]] = []

        async def begins() -> None:
            seen.append(await listed(cloud, server))
            await cloud.good("POST", f"/servers/{server}/action", {action: None}, token="admin")

        ports.meanwhile = begins
        assert await detach(cloud, server) == 202
        assert (seen, ports.server, await listed(cloud, server)) == ([[]], None, [])
        assert (await records(cloud, server)).count("detach_interface") == 1


async def test_a_row_that_was_told_of_its_ports_meanwhile_loses_the_one_that_goes(tmp_path: Path) -> None:
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        assert await attach(cloud, server) == 200

        async def told() -> None:
            unit = partial(interfaces.tell, vifs={InstanceUuid(server): (VIF,)}, now=2)
            await cloud.services.cells[CELL1].write(unit)

        ports.meanwhile = told
        assert await detach(cloud, server) == 202
        assert await listed(cloud, server) == []


async def test_a_port_that_does_not_go_stays_with_its_server(tmp_path: Path) -> None:
    """It has the place that it had, and can be asked for again."""
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        assert await attach(cloud, server) == 200
        other = msgspec.structs.replace(VIF, id="port-2")
        unit = partial(interfaces.tell, vifs={InstanceUuid(server): (VIF, other)}, now=2)
        await cloud.services.cells[CELL1].write(unit)
        ports.detaching = Unavailable("the network service does not answer")
        assert await detach(cloud, server) == 503
        assert (ports.server, await listed(cloud, server)) == (server, [VIF.id, other.id])
        ports.detaching = None
        assert await detach(cloud, server) == 202
        assert await detach(cloud, server) == 404
        assert (ports.server, await listed(cloud, server)) == (None, [other.id])


@pytest.mark.parametrize("state", ["unplaced", "building"])
async def test_a_server_that_is_not_built_gets_none(tmp_path: Path, state: str) -> None:
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await cloud.create()
        if state == "building":
            await cloud.place(server, CELL1)
        assert await attach(cloud, server) == 409
        assert ports.server is None


async def test_two_at_once_are_both_in_the_row(tmp_path: Path) -> None:
    """One row that is written twice keeps what both have written."""
    made: list[str] = []

    class Several(OnePort):
        async def attach(self, wanted: WantedInterface, context: RequestContext, token: str) -> Vif:  # noqa: ARG002
            made.append(f"port-{len(made)}")
            return Vif(id=made[-1], mac_address="fa:16:3e:00:00:01", network_id="n", network_name="n", mtu=1450)

    async with servers_under_test(tmp_path, networks=Several()) as cloud:
        server = await built(cloud)
        assert await asyncio.gather(*(attach(cloud, server) for _ in range(5))) == [200] * 5
        shown = await cloud.good("GET", f"/servers/{server}/os-interface")
        assert sorted(one["port_id"] for one in shown["interfaceAttachments"]) == sorted(made)
