"""An interface that is attached: its port and the row of its server, whatever happens between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

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


async def test_a_server_that_something_begins_to_be_done_to_loses_its_interface_all_the_same(tmp_path: Path) -> None:
    """The port is gone by then: nobody has to ask for it again."""
    ports = OnePort()
    async with servers_under_test(tmp_path, networks=ports) as cloud:
        server = await built(cloud)
        assert await attach(cloud, server) == 200

        async def begins() -> None:
            await cloud.good("POST", f"/servers/{server}/action", {"suspend": None})

        ports.meanwhile = begins
        assert (await cloud.ask("DELETE", f"/servers/{server}/os-interface/{VIF.id}")).status_code == 202
        assert ports.server is None


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
