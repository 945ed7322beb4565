"""What must hold of networks that users ask for in a create: inherit `NetworksOfUsersContract`, give it `networks`.

The networks are those of Skep's own network service (`cloud`).
"""

from __future__ import annotations

import abc

import pytest

from skep.contracts.neighbours.networks_world import THEIRS, NetworksWorld
from skep.contracts.neighbours.proxied_networks import ProxiedAddressesContract, ProxiedGroupsContract
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, QuotaExceeded
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.vifs import RequestedNetwork, Vif
from skep.neighbours.networks.base import GroupChange


class NetworksOfUsersContract(ProxiedGroupsContract, ProxiedAddressesContract, abc.ABC):
    """Tests of the port `skep.neighbours.networks.base.NetworksOfUsers`."""

    async def test_none_is_none(self, world: NetworksWorld) -> None:
        """Whatever networks there are."""
        await world.network("10.0.0.0/24")
        chosen = await world.choose("none", servers=(1, 3))
        assert (chosen.networks, chosen.named, chosen.security_groups, chosen.count) == ("none", (), (), 3)

    async def test_nothing_is_said_and_there_is_no_network(self, world: NetworksWorld) -> None:
        """The servers get none; what is others' does not count."""
        await world.network("10.0.0.0/24", by="admin", project_id=THEIRS)
        await world.network("203.0.113.0/24", by="admin", project_id=THEIRS, **{"router:external": True})
        await world.network("10.0.0.0/24", admin_state_up=False)
        assert (await world.choose("absent")).networks == "none"

    @pytest.mark.parametrize("said", ["absent", "auto"])
    async def test_the_only_network_is_meant(self, world: NetworksWorld, said: str) -> None:
        """Where nothing is named."""
        network = await world.network("10.0.0.0/24")
        chosen = await world.choose(said)
        assert (chosen.networks, chosen.named) == ("named", (RequestedNetwork(network_id=network),))

    async def test_a_shared_network_is_meant_too(self, world: NetworksWorld) -> None:
        """Where it is the only one that the project can use."""
        network = await world.network("10.0.0.0/24", by="admin", project_id=THEIRS, shared=True)
        assert (await world.choose("absent")).named == (RequestedNetwork(network_id=network),)

    @pytest.mark.parametrize("said", ["absent", "auto"])
    async def test_several_networks_could_be_meant(self, world: NetworksWorld, said: str) -> None:
        """Then the user has to say which."""
        await world.network("10.0.0.0/24")
        await world.network("10.0.0.0/24", by="admin", project_id=THEIRS, shared=True)
        with pytest.raises(Conflict, match="More than one possible network"):
            await world.choose(said)

    async def test_auto_makes_nothing_yet(self, world: NetworksWorld) -> None:
        """The network is made with the first port."""
        before = await world.counts()
        chosen = await world.choose("auto", servers=(1, 2))
        assert (chosen.networks, chosen.named, chosen.count) == ("auto", (), 2)
        assert await world.counts() == before

    @pytest.mark.parametrize("resource", ["network", "subnet"])
    async def test_auto_without_quota_for_a_network(self, world: NetworksWorld, resource: str) -> None:
        """It is refused before there is a server."""
        await world.quota(**{resource: 0})
        with pytest.raises(BadRequest, match="Unable to automatically allocate a network"):
            await world.choose("auto")

    async def test_what_is_named_is_taken_in_its_order(self, world: NetworksWorld) -> None:
        """A network, an address of one, a port, with tags; a network may be named twice."""
        first, second = await world.network("10.1.0.0/24"), await world.network("10.2.0.0/24", "2001:db8::/64")
        port = await world.port(first)
        named = (
            RequestedNetwork(network_id=second, fixed_ip="10.2.0.9", tag="front"),
            RequestedNetwork(network_id=second, fixed_ip="2001:db8::9"),
            RequestedNetwork(port_id=port["id"], tag="back"),
            RequestedNetwork(network_id=first),
            RequestedNetwork(network_id=first),
        )
        chosen = await world.choose("named", *named)
        assert (chosen.networks, chosen.named, chosen.count) == ("named", named, 1)

    async def test_a_network_that_the_project_cannot_use(self, world: NetworksWorld) -> None:
        """One that is not there, or others'. An admin may use it."""
        network = await world.network("10.0.0.0/24", by="admin", project_id=THEIRS)
        for one in (network, new_uuid()):
            with pytest.raises(BadRequest, match=r"server\.networks\[0\]\.uuid"):
                await world.choose("named", RequestedNetwork(network_id=one))
        assert (await world.choose("named", RequestedNetwork(network_id=network), by="admin")).count == 1

    async def test_a_network_without_a_subnet(self, world: NetworksWorld) -> None:
        """A server would have no address there."""
        network = await world.network()
        with pytest.raises(BadRequest, match="with a subnet"):
            await world.choose("named", RequestedNetwork(network_id=network))

    async def test_an_external_network(self, world: NetworksWorld) -> None:
        """Is for admins, unless it is shared."""
        network = await world.network("203.0.113.0/24", by="admin", project_id=THEIRS, **{"router:external": True})
        with pytest.raises(Forbidden):
            await world.choose("named", RequestedNetwork(network_id=network))
        assert (await world.choose("named", RequestedNetwork(network_id=network), by="admin")).count == 1
        await world.ask("PUT", f"networks/{network}", {"network": {"shared": True}}, by="admin")
        assert (await world.choose("named", RequestedNetwork(network_id=network))).count == 1

    async def test_a_port_in_use(self, world: NetworksWorld) -> None:
        """Whoever uses it."""
        port = await world.port(await world.network("10.0.0.0/24"), device_id="somebody")
        with pytest.raises(Conflict, match="still in use"):
            await world.choose("named", RequestedNetwork(port_id=port["id"]))

    async def test_a_port_that_the_project_does_not_have(self, world: NetworksWorld) -> None:
        """One that is not there; others', also one on a network of the project."""
        mine = await world.network("10.0.0.0/24")
        foreign = await world.network("10.0.0.0/24", by="admin", project_id=THEIRS)
        theirs = [await world.port(network, by="admin", project_id=THEIRS) for network in (mine, foreign)]
        for one in (new_uuid(), *(port["id"] for port in theirs)):
            with pytest.raises(BadRequest, match=r"server\.networks\[0\]\.port"):
                await world.choose("named", RequestedNetwork(port_id=one))

    async def test_a_port_without_an_address(self, world: NetworksWorld) -> None:
        """A server would have none."""
        port = await world.port(await world.network("10.0.0.0/24"), fixed_ips=[])
        with pytest.raises(BadRequest, match="fixed IP address"):
            await world.choose("named", RequestedNetwork(port_id=port["id"]))

    async def test_a_port_that_needs_a_device_of_its_host(self, world: NetworksWorld) -> None:
        """No host has one: it is refused by the name of its kind."""
        port = await world.port(await world.network("10.0.0.0/24"), **{"binding:vnic_type": "direct"})
        with pytest.raises(BadRequest, match=r"server\.networks\[0\]\.port.*no host has devices for 'direct'"):
            await world.choose("named", RequestedNetwork(port_id=port["id"]))

    async def test_what_can_be_of_one_server_only(self, world: NetworksWorld) -> None:
        """A port, an address."""
        network = await world.network("10.0.0.0/24")
        port = await world.port(network)
        for one, field in (
            (RequestedNetwork(port_id=port["id"]), "port"),
            (RequestedNetwork(network_id=network, fixed_ip="10.0.0.9"), "fixed_ip"),
        ):
            with pytest.raises(BadRequest, match=rf"server\.networks\[0\]\.{field}"):
                await world.choose("named", one, servers=(1, 2))

    async def test_what_is_named_twice(self, world: NetworksWorld) -> None:
        """A port, an address, however it is written."""
        network = await world.network("10.0.0.0/24", "2001:db8::/64")
        port = await world.port(network)
        for first, second, field in (
            (RequestedNetwork(port_id=port["id"]), RequestedNetwork(port_id=port["id"]), "port"),
            (
                RequestedNetwork(network_id=network, fixed_ip="2001:db8::9"),
                RequestedNetwork(network_id=network, fixed_ip="2001:db8:0::9"),
                "fixed_ip",
            ),
        ):
            with pytest.raises(BadRequest, match=rf"server\.networks\[1\]\.{field}"):
                await world.choose("named", first, second)

    async def test_addresses_that_cannot_be_given(self, world: NetworksWorld) -> None:
        """Taken, of no subnet, of the network itself, none at all."""
        network = await world.network("10.0.0.0/24")
        await world.port(network, fixed_ips=[{"ip_address": "10.0.0.9"}])
        for text in ("10.0.0.9", "10.0.1.9", "10.0.0.0", "10.0.0.255", "2001:db8::1", "nonsense"):
            with pytest.raises(BadRequest, match=r"server\.networks\[0\]\.fixed_ip"):
                await world.choose("named", RequestedNetwork(network_id=network, fixed_ip=text))

    async def test_an_address_of_a_shared_network(self, world: NetworksWorld) -> None:
        """Its owner chooses, and admins."""
        network = await world.network("10.0.0.0/24", by="admin", project_id=THEIRS, shared=True)
        named = RequestedNetwork(network_id=network, fixed_ip="10.0.0.9")
        with pytest.raises(Forbidden):
            await world.choose("named", named)
        assert (await world.choose("named", named, by="admin")).count == 1

    async def test_security_groups(self, world: NetworksWorld) -> None:
        """By name or id; the default group need not be there yet, and alone is as if nothing was said."""
        group = await world.make("security-group", name="web")
        for said in ("web", group["id"]):
            assert (await world.choose("none", groups=(said,))).security_groups == (group["id"],)
        assert (await world.choose("none", groups=("default",))).security_groups == ()
        both = (await world.choose("none", groups=("default", "web"))).security_groups
        assert len(both) == 2
        assert both[1] == group["id"]

    async def test_security_groups_that_cannot_be_meant(self, world: NetworksWorld) -> None:
        """Unknown or others', by name and by id; several of one name, which their ids tell apart."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        for said in ("nothing", new_uuid(), "theirs", theirs["id"]):
            with pytest.raises(BadRequest, match=r"server\.security_groups\[0\]"):
                await world.choose("none", groups=(said,))
        twins = [await world.make("security-group", name="twin") for _ in range(2)]
        with pytest.raises(Conflict, match="twin"):
            await world.choose("none", groups=("twin",))
        assert (await world.choose("none", groups=(twins[1]["id"],))).security_groups == (twins[1]["id"],)

    async def test_quota_of_ports(self, world: NetworksWorld) -> None:
        """As many servers as it has room for, at least the minimum; ports of users cost nothing more."""
        network = await world.network("10.0.0.0/24")
        port = await world.port(network)
        twice = (RequestedNetwork(network_id=network), RequestedNetwork(network_id=network))
        await world.quota(port=6)
        assert (await world.choose("named", *twice, servers=(1, 5))).count == 2
        assert (await world.choose("named", *twice, servers=(2, 2))).count == 2
        with pytest.raises(QuotaExceeded):
            await world.choose("named", *twice, servers=(3, 5))
        assert (await world.choose("none", servers=(9, 9))).count == 9
        await world.quota(port=1)
        assert (await world.choose("named", RequestedNetwork(port_id=port["id"]))).count == 1
        with pytest.raises(QuotaExceeded):
            await world.choose("absent")

    async def test_quota_of_ports_is_counted_before_any_is_looked_up(self, world: NetworksWorld) -> None:
        """So what a request costs that asks for many ports is bounded by the quota."""
        await world.quota(port=2)
        absent = RequestedNetwork(network_id=new_uuid())
        with pytest.raises(QuotaExceeded):
            await world.choose("named", absent, absent, absent)
        with pytest.raises(BadRequest, match=r"server\.networks\[0\]\.uuid"):
            await world.choose("named", absent, absent)

    async def test_a_group_for_all_ports_of_a_server(self, world: NetworksWorld) -> None:
        """It is found by name or id; a repeat changes nothing, and it may be taken away once."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        group = (await world.make("security-group", name="web"))["id"]
        server = await world.server()
        await world.given(world.wanted(server, network, network))
        before = [one["security_groups"] for one in await world.ports_of(server)]
        for named in ("web", group):
            vifs = await self._set(world, server, named, added=True)
            assert vifs == (await world.networks.of_servers([server]))[server]
            assert [group in one["security_groups"] for one in await world.ports_of(server)] == [True, True]
        [vif, _] = (await world.networks.of_servers([server]))[server]
        assert {one.name for one in vif.groups} == {"default", "web"}
        await self._set(world, server, "web", added=False)
        assert [one["security_groups"] for one in await world.ports_of(server)] == before
        with pytest.raises(NotFound, match="not associated"):
            await self._set(world, server, "web", added=False)

    async def test_groups_that_a_server_cannot_get(self, world: NetworksWorld) -> None:
        """One that is not there or others', one of several, one that does not fit to what a port has."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        theirs = (await world.make("security-group", by="admin", name="theirs", project_id=THEIRS))["id"]
        await world.make("security-group", name="loose", stateful=False)
        for _ in range(2):
            await world.make("security-group", name="twice")
        server, bare = await world.server(), await world.server()
        await world.given(world.wanted(server, network))
        before = await world.ports_of(server)
        for named in ("nowhere", "theirs", theirs):
            with pytest.raises(NotFound, match="not found"):
                await self._set(world, server, named, added=True)
        with pytest.raises(Conflict, match="Multiple"):
            await self._set(world, server, "twice", added=True)
        with pytest.raises(Conflict, match="stateless"):
            await self._set(world, server, "loose", added=True)
        with pytest.raises(NotFound, match="no ports"):
            await self._set(world, bare, "loose", added=True)
        assert await world.ports_of(server) == before

    async def test_a_port_without_port_security_gets_no_group(self, world: NetworksWorld) -> None:
        """Then no port of the server gets it."""
        network = await world.network("10.0.0.0/24")
        group = (await world.make("security-group", name="web"))["id"]
        open_one = await world.port(network, port_security_enabled=False, security_groups=[])
        server = await world.server()
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=open_one["id"]))
        await world.given(world.wanted(server, *named))
        with pytest.raises(BadRequest, match="port_security_enabled"):
            await self._set(world, server, "web", added=True)
        assert all(group not in one["security_groups"] for one in await world.ports_of(server))

    async def _set(self, world: NetworksWorld, server: InstanceUuid, group: str, *, added: bool) -> tuple[Vif, ...]:
        change = GroupChange(instance=server, group=group, added=added)
        return await world.networks.set_group(change, world.context(), world.tokens["demo"])
