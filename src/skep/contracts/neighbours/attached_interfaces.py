"""What must hold of interfaces of servers that are there: inherit `AttachedInterfacesContract`, give it `networks`.

The networks are those of Skep's own network service (`cloud`).
"""

from __future__ import annotations

import abc
import asyncio

import pytest

from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import HOST, THEIRS, NetworksWorld, addresses
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, QuotaExceeded, SkepError
from skep.domain.ids import InstanceUuid, ProjectId, new_uuid
from skep.domain.vifs import RequestedNetwork, Vif
from skep.neighbours.networks.base import WantedInterface


class AttachedInterfacesContract(NetworksContractBase, abc.ABC):
    """Tests of `attach` and `detach` of the port `skep.neighbours.networks.base.NetworksOfUsers`."""

    async def test_a_server_gets_one_more_interface(self, world: NetworksWorld) -> None:
        """On a network, with an address or without one, or by a port of the user's; it is its last one."""
        network = await world.network("10.1.0.0/24", name="one")
        brought = await world.port(await world.network("10.2.0.0/24"))
        server = await world.server()
        [first] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        asked = (
            RequestedNetwork(network_id=network, tag="back"),
            RequestedNetwork(network_id=network, fixed_ip="10.1.0.77"),
            RequestedNetwork(port_id=brought["id"]),
        )
        given = [await _attach(world, server, one) for one in asked]
        assert [(one.made, one.tag) for one in given] == [(True, "back"), (True, None), (False, None)]
        assert addresses(*given)[1:] == ["10.1.0.77", brought["fixed_ips"][0]["ip_address"]]
        assert (await world.networks.of_servers([server]))[server] == (*first, *given)
        for vif in given:
            port = await world.shown(vif.id)
            assert (port["device_id"], port["device_owner"]) == (server, "compute:nova")
            assert (port["binding:host_id"], port["project_id"]) == (HOST, world.project)

    async def test_the_only_network_is_meant(self, world: NetworksWorld) -> None:
        """Where none is named; without one, or with several, the user has to say which."""
        server = await world.server()
        with pytest.raises(BadRequest, match="none are available"):
            await _attach(world, server, RequestedNetwork())
        network = await world.network("10.1.0.0/24")
        assert (await _attach(world, server, RequestedNetwork(tag="only"))).network_id == network
        await world.network("10.2.0.0/24")
        with pytest.raises(BadRequest, match="More than one possible network"):
            await _attach(world, server, RequestedNetwork())
        assert [one["network_id"] for one in await world.ports_of(server)] == [network]

    async def test_an_interface_is_taken_away(self, world: NetworksWorld) -> None:
        """What was made for the server is deleted, also by its build; what a user brought is given back."""
        network = await world.network("10.1.0.0/24")
        brought = await world.port(network)
        server = await world.server()
        [[built]] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        attached = await _attach(world, server, RequestedNetwork(network_id=network))
        await _attach(world, server, RequestedNetwork(port_id=brought["id"]))
        for port_id in (attached.id, brought["id"], built.id):
            await _detach(world, server, port_id)
            with pytest.raises(NotFound):
                await _detach(world, server, port_id)
        assert await world.ports_of(server) == []
        assert (await world.networks.of_servers([server]))[server] == ()
        left = await world.shown(brought["id"])
        assert (left["device_id"], left["device_owner"], left["binding:host_id"]) == ("", "", "")
        assert left["fixed_ips"] == brought["fixed_ips"]
        again = await _attach(world, server, RequestedNetwork(network_id=network, fixed_ip=addresses(attached)[0]))
        assert addresses(again) == addresses(attached)

    async def test_a_port_is_released_that_its_guest_has_no_more(self, world: NetworksWorld) -> None:
        """By Skep itself, without a user's token; one that is none of the server's is left alone."""
        network = await world.network("10.1.0.0/24")
        brought = await world.port(network)
        server, other = await world.server(), await world.server()
        made = await _attach(world, server, RequestedNetwork(network_id=network))
        await _attach(world, server, RequestedNetwork(port_id=brought["id"]))
        stays = await _attach(world, other, RequestedNetwork(network_id=network))
        for port_id in (made.id, brought["id"], made.id, brought["id"], stays.id, new_uuid()):
            await world.networks.release_port(server, port_id)
        assert await world.ports_of(server) == []
        assert [one["id"] for one in await world.ports_of(other)] == [stays.id]
        assert (await world.shown(brought["id"]))["device_id"] == ""

    async def test_an_interface_of_another_server_stays(self, world: NetworksWorld) -> None:
        """As does a port that no server has."""
        network = await world.network("10.1.0.0/24")
        free = await world.port(network)
        server, other = await world.server(), await world.server()
        vif = await _attach(world, other, RequestedNetwork(network_id=network))
        absent = new_uuid()
        with pytest.raises(NotFound, match=f"Port id {absent} could not be found"):
            await _attach(world, server, RequestedNetwork(port_id=absent))
        for port_id in (vif.id, free["id"], absent, "no id"):
            with pytest.raises(NotFound):
                await _detach(world, server, port_id)
        assert [one["id"] for one in await world.ports_of(other)] == [vif.id]

    async def test_what_a_server_cannot_get(self, world: NetworksWorld) -> None:
        """The error says whose fault it is; nothing is made."""
        network, bare = await world.network("10.1.0.0/24"), await world.network()
        theirs = await world.network("10.0.0.0/24", by="admin", project_id=THEIRS)
        outside = await world.network("203.0.113.0/24", by="admin", shared=False, **{"router:external": True})
        shared = await world.network("10.4.0.0/24", by="admin", project_id=THEIRS, shared=True)
        used = await world.port(network, device_id="somebody")
        foreign = await world.port(network, by="admin", project_id=THEIRS)
        unaddressed = await world.port(bare)
        held = used["fixed_ips"][0]["ip_address"]
        server = await world.server()
        before = await world.counts()
        cases: list[tuple[type[SkepError], RequestedNetwork]] = [
            (NotFound, RequestedNetwork(network_id=new_uuid())),
            (NotFound, RequestedNetwork(network_id=theirs)),
            (NotFound, RequestedNetwork(port_id=new_uuid())),
            (NotFound, RequestedNetwork(port_id=foreign["id"])),
            (BadRequest, RequestedNetwork(network_id=bare)),
            (BadRequest, RequestedNetwork(port_id=unaddressed["id"])),
            (BadRequest, RequestedNetwork(network_id=network, fixed_ip="10.9.0.1")),
            (Conflict, RequestedNetwork(network_id=network, fixed_ip=held)),
            (Conflict, RequestedNetwork(port_id=used["id"])),
            (Forbidden, RequestedNetwork(network_id=outside)),
            (Forbidden, RequestedNetwork(network_id=shared, fixed_ip="10.4.0.9")),
        ]
        for error, asked in cases:
            with pytest.raises(error):
                await _attach(world, server, asked)
        assert await world.counts() == before
        assert await world.ports_of(server) == []

    async def test_a_quota_and_a_network_that_are_used_up(self, world: NetworksWorld) -> None:
        """Nothing is made."""
        network = await world.network()
        await world.subnet(network, "10.3.0.0/24", allocation_pools=[{"start": "10.3.0.9", "end": "10.3.0.9"}])
        server = await world.server()
        await _attach(world, server, RequestedNetwork(network_id=network))
        with pytest.raises(BadRequest, match="No more IP addresses"):
            await _attach(world, server, RequestedNetwork(network_id=network))
        await world.quota(port=1)
        with pytest.raises(QuotaExceeded):
            await _attach(world, server, RequestedNetwork(network_id=network))
        assert len(await world.ports_of(server)) == 1

    async def test_a_server_that_goes_gets_nothing(self, world: NetworksWorld) -> None:
        """Nor one that is gone, nor one that nobody knows."""
        network = await world.network("10.1.0.0/24")
        before = await world.counts()
        for server in (
            await world.server(deleted_at=1),
            await world.server(delete_intent_at=1),
            InstanceUuid(new_uuid()),
        ):
            with pytest.raises(NotFound):
                await _attach(world, server, RequestedNetwork(network_id=network))
        assert await world.counts() == before

    async def test_one_port_for_two_servers(self, world: NetworksWorld) -> None:
        """One has it, also when both are asked for at once. So it is with an address."""
        network = await world.network("10.1.0.0/24")
        port = await world.port(network)
        for asked in (
            RequestedNetwork(port_id=port["id"]),
            RequestedNetwork(network_id=network, fixed_ip="10.1.0.9"),
        ):
            servers = [await world.server() for _ in range(2)]
            got = await asyncio.gather(*(_attach(world, one, asked) for one in servers), return_exceptions=True)
            assert sorted(isinstance(one, Conflict) for one in got) == [False, True]
            assert sorted([len(await world.ports_of(one)) for one in servers]) == [0, 1]

    async def test_of_all_that_are_taken_away_at_once_one_is(self, world: NetworksWorld) -> None:
        """The others are told that it is gone."""
        server = await world.server()
        network = await world.network("10.1.0.0/24")
        vif = await _attach(world, server, RequestedNetwork(network_id=network))
        got = await asyncio.gather(*(_detach(world, server, vif.id) for _ in range(3)), return_exceptions=True)
        assert sorted(isinstance(one, NotFound) for one in got) == [False, True, True]

    async def test_an_admin_gives_a_port_to_a_server_of_others(self, world: NetworksWorld) -> None:
        """It is the port of the server's project."""
        network = await world.network("10.1.0.0/24")
        server = await world.server()
        vif = await _attach(world, server, RequestedNetwork(network_id=network), by="admin")
        assert (await world.shown(vif.id))["project_id"] == world.project


async def _attach(world: NetworksWorld, server: InstanceUuid, asked: RequestedNetwork, *, by: str = "demo") -> Vif:
    wanted = WantedInterface(
        instance=server, project_id=ProjectId(world.project), host=HOST, zone="nova", network=asked
    )
    return await world.networks.attach(wanted, world.context(by), world.tokens[by])


async def _detach(world: NetworksWorld, server: InstanceUuid, port_id: str) -> None:
    await world.networks.detach(server, port_id, world.context(), world.tokens["demo"])
