"""What must hold of networks that old clients ask the compute API for: a part of `NetworksOfUsersContract`."""

from __future__ import annotations

import abc
import asyncio
from typing import Any

import pytest

from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import THEIRS, NetworksWorld, addresses
from skep.domain.errors import BadRequest, Conflict, NotFound, QuotaExceeded
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.networks.base import NamedNetwork, WantedRule


class ProxiedGroupsContract(NetworksContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.networks.base.ProxiedGroups`."""

    async def test_groups_are_listed_with_the_default_one(self, world: NetworksWorld) -> None:
        """Also where no group was made yet; those of others only to an admin who asks for all."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        found = await world.networks.list_groups(*world.asking(), of_all=True)
        assert [(one.name, one.project_id) for one in found] == [("default", world.project)]
        everyone = await world.networks.list_groups(*world.asking("admin"), of_all=True)
        assert {theirs["id"], found[0].id} <= {one.id for one in everyone}
        own = await world.networks.list_groups(*world.asking("admin"), of_all=False)
        assert [one.name for one in own] == ["default"]

    async def test_a_group_is_made_changed_and_deleted(self, world: NetworksWorld) -> None:
        """It is one of the network service."""
        made = await world.networks.create_group("web", "for all", *world.asking())
        assert (made.name, made.description, made.project_id) == ("web", "for all", world.project)
        changed = await world.networks.update_group(made.id, "net", "", *world.asking())
        assert (changed.id, changed.name, changed.description) == (made.id, "net", "")
        assert (await world.ask("GET", f"security-groups/{made.id}"))["name"] == "net"
        await world.networks.delete_group(made.id, *world.asking())
        assert await world.networks.security_groups([made.id], *world.asking()) == []

    async def test_groups_that_are_not_the_callers(self, world: NetworksWorld) -> None:
        """They are not there for him."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        for group in (theirs["id"], new_uuid()):
            with pytest.raises(NotFound):
                await world.networks.group(group, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.update_group(group, "mine", "", *world.asking())
            with pytest.raises(NotFound):
                await world.networks.delete_group(group, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.create_rule(_rule(group), *world.asking())

    async def test_what_is_no_id(self, world: NetworksWorld) -> None:
        """A name names no group and no rule here."""
        made = await world.networks.create_group("web", "", *world.asking())
        assert await world.networks.group(made.id.upper(), *world.asking()) == made
        with pytest.raises(BadRequest):
            await world.networks.group("web", *world.asking())
        with pytest.raises(BadRequest):
            await world.networks.update_group("web", "net", "", *world.asking())
        with pytest.raises(BadRequest):
            await world.networks.delete_group("web", *world.asking())
        with pytest.raises(BadRequest):
            await world.networks.delete_rule("web", *world.asking())

    async def test_groups_that_cannot_be(self, world: NetworksWorld) -> None:
        """A second default one, one over the quota."""
        with pytest.raises(BadRequest):
            await world.networks.create_group("default", "", *world.asking())
        await world.quota(security_group=0)
        with pytest.raises(QuotaExceeded):
            await world.networks.create_group("web", "", *world.asking())

    async def test_groups_that_stay(self, world: NetworksWorld) -> None:
        """The default one, and one that a port has."""
        [default] = await world.networks.list_groups(*world.asking(), of_all=False)
        used = await world.networks.create_group("web", "", *world.asking())
        await world.port(await world.network("10.0.0.0/24"), security_groups=[used.id])
        for group in (default.id, used.id):
            with pytest.raises(BadRequest):
                await world.networks.delete_group(group, *world.asking())
        with pytest.raises(BadRequest):
            await world.networks.update_group(default.id, "other", "", *world.asking())

    async def test_a_rule_is_made_and_deleted(self, world: NetworksWorld) -> None:
        """Of addresses of either version, or of a group."""
        group = await world.networks.create_group("web", "", *world.asking())
        for wanted, ethertype in (
            (_rule(group.id), "IPv4"),
            (_rule(group.id, cidr="2001:db8::/32"), "IPv6"),
            (_rule(group.id, remote_group=group.id), "IPv4"),
        ):
            made, after = await world.networks.create_rule(wanted, *world.asking())
            [rule] = [one for one in after.rules if one.id == made]
            assert (rule.direction, rule.ethertype, rule.protocol) == ("ingress", ethertype, "tcp")
            assert (rule.port_range_min, rule.port_range_max) == (22, 23)
            assert (rule.remote_ip_prefix, rule.remote_group_id) == (wanted.cidr, wanted.remote_group)
            assert rule.remote_group_id is None or after.names[group.id] == "web"
            await world.networks.delete_rule(made, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.delete_rule(made, *world.asking())

    async def test_rules_that_cannot_be(self, world: NetworksWorld) -> None:
        """One that is there, one of what is no address, one over the quota, others' group."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        group = await world.networks.create_group("web", "", *world.asking())
        made, _ = await world.networks.create_rule(_rule(group.id), *world.asking())
        for bad in (_rule(group.id), _rule(group.id, cidr="10.0.0.0/99"), _rule(group.id, cidr="web")):
            with pytest.raises(BadRequest):
                await world.networks.create_rule(bad, *world.asking())
        with pytest.raises(NotFound):
            await world.networks.create_rule(_rule(group.id, remote_group=theirs["id"]), *world.asking())
        await world.networks.delete_rule(made, *world.asking())
        await world.quota(security_group_rule=1)
        with pytest.raises(QuotaExceeded):
            await world.networks.create_rule(_rule(group.id), *world.asking())

    async def test_rules_that_are_not_the_callers(self, world: NetworksWorld) -> None:
        """They are not there for him."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        with pytest.raises(NotFound):
            await world.networks.delete_rule(theirs["security_group_rules"][0]["id"], *world.asking())


class ProxiedAddressesContract(NetworksContractBase, abc.ABC):
    """Tests of the ports `ProxiedFloatingIps` and `ProxiedNetworks` of the same module."""

    async def test_networks_are_those_that_the_caller_sees(self, world: NetworksWorld) -> None:
        """His own, shared ones, external ones; all of them for an admin."""
        mine, shared = await world.network(name="mine"), await _of_others(world, shared=True)
        outside, hidden = await _of_others(world, **{"router:external": True}), await _of_others(world)
        found = await world.networks.list_networks(*world.asking())
        assert {one.id for one in found} == {mine, shared, outside}
        assert await world.networks.network(mine, *world.asking()) == NamedNetwork(mine, "mine")
        for one in (hidden, new_uuid(), "mine"):
            with pytest.raises(NotFound):
                await world.networks.network(one, *world.asking())
        every = await world.networks.list_networks(*world.asking("admin"))
        assert {one.id for one in every} == {mine, shared, outside, hidden}

    async def test_pools_are_external_networks(self, world: NetworksWorld) -> None:
        """By name; what is named is found by name or id."""
        assert await world.networks.floating_pools(*world.asking()) == []
        with pytest.raises(NotFound, match="pool"):
            await world.networks.take_floating_ip(None, *world.asking())
        pool = await _pool(world, "203.0.113.0/24", "outside")
        assert await world.networks.floating_pools(*world.asking()) == ["outside"]
        taken = [await world.networks.take_floating_ip(one, *world.asking()) for one in (None, "outside", pool)]
        assert {one.pool for one in taken} == {"outside"}
        listed = await world.networks.floating_ips(*world.asking())
        assert sorted(listed, key=lambda one: one.address) == sorted(taken, key=lambda one: one.address)
        assert await world.networks.floating_ip(taken[1].id, *world.asking()) == taken[1]
        with pytest.raises(NotFound, match="pool"):
            await world.networks.take_floating_ip("inside", *world.asking())

    async def test_one_of_several_pools(self, world: NetworksWorld) -> None:
        """The default one, where there is one; a name that two have means none of them."""
        for name in ("a", "twin", "twin"):
            await _pool(world, "203.0.113.0/24", name)
        with pytest.raises(NotFound, match="pool"):
            await world.networks.take_floating_ip(None, *world.asking())
        with pytest.raises(BadRequest, match="Multiple"):
            await world.networks.take_floating_ip("twin", *world.asking())
        await _pool(world, "198.51.100.0/24", "first", is_default=True)
        assert (await world.networks.take_floating_ip(None, *world.asking())).pool == "first"

    async def test_no_floating_address_left(self, world: NetworksWorld) -> None:
        """Of the pool, of the quota; one that is given back can be taken again."""
        await _pool(world, "203.0.113.0/30", "outside")
        taken = await world.networks.take_floating_ip(None, *world.asking())
        with pytest.raises(NotFound, match="No more floating IPs in pool outside"):
            await world.networks.take_floating_ip(None, *world.asking())
        await world.networks.give_floating_ip_back(taken.id, *world.asking())
        with pytest.raises(NotFound):
            await world.networks.give_floating_ip_back(taken.id, *world.asking())
        assert (await world.networks.take_floating_ip(None, *world.asking())).address == taken.address
        await world.quota(floatingip=1)
        with pytest.raises(QuotaExceeded):
            await world.networks.take_floating_ip(None, *world.asking())

    async def test_a_floating_address_leads_to_a_server_and_away(self, world: NetworksWorld) -> None:
        """To its first IPv4 address, or to one that is named; not to two, and not to what is not the server's."""
        server, other, _ = await _reachable(world)
        [first] = (await world.networks.of_servers([server]))[server]
        fixed = first.subnets[0].addresses[0].address
        one, two = [await world.networks.take_floating_ip(None, *world.asking()) for _ in range(2)]
        await world.networks.lead_floating_ip(server, one.address, None, *world.asking())
        shown = await world.networks.floating_ip(one.id, *world.asking())
        assert (shown.fixed_address, shown.instance) == (fixed, server)
        [first] = (await world.networks.of_servers([server]))[server]
        assert first.subnets[0].addresses[0].floating == (one.address,)
        for wanted in (None, fixed):
            with pytest.raises(BadRequest):
                await world.networks.lead_floating_ip(server, two.address, wanted, *world.asking())
        with pytest.raises(BadRequest, match="not assigned"):
            await world.networks.lead_floating_ip(server, two.address, "10.1.0.250", *world.asking())
        for lost in (other, await world.server()):
            with pytest.raises(Conflict, match="is not associated"):
                await world.networks.loosen_floating_ip(lost, one.address, *world.asking())
        await world.networks.loosen_floating_ip(server, one.address, *world.asking())
        assert (await world.networks.floating_ip(one.id, *world.asking())).instance is None
        with pytest.raises(Conflict):
            await world.networks.loosen_floating_ip(server, one.address, *world.asking())
        with pytest.raises(BadRequest, match="No fixed IPs"):
            await world.networks.lead_floating_ip(await world.server(), one.address, None, *world.asking())

    async def test_floating_addresses_that_are_not_the_callers(self, world: NetworksWorld) -> None:
        """They are not there for him, whatever leads to them."""
        server, _, _ = await _reachable(world)
        theirs = await world.networks.take_floating_ip(None, *world.asking("admin"))
        assert await world.networks.floating_ips(*world.asking()) == []
        for one in (theirs.id, new_uuid()):
            with pytest.raises(NotFound):
                await world.networks.floating_ip(one, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.give_floating_ip_back(one, *world.asking())
        for address in (theirs.address, "203.0.113.250"):
            with pytest.raises(NotFound):
                await world.networks.lead_floating_ip(server, address, None, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.loosen_floating_ip(server, address, *world.asking())

    async def test_a_server_that_no_router_reaches(self, world: NetworksWorld) -> None:
        """It gets no floating address."""
        await _pool(world, "203.0.113.0/24", "outside")
        server = await world.server()
        await world.given(world.wanted(server, RequestedNetwork(network_id=await world.network("10.1.0.0/24"))))
        taken = await world.networks.take_floating_ip(None, *world.asking())
        with pytest.raises(BadRequest, match="Unable to associate"):
            await world.networks.lead_floating_ip(server, taken.address, None, *world.asking())

    async def test_a_server_gets_one_more_fixed_address_and_loses_it(self, world: NetworksWorld) -> None:
        """On a network where it has a port; a floating address that led to it leads nowhere then."""
        server, _, network = await _reachable(world)
        await world.networks.add_fixed_ip(server, network, *world.asking())
        vifs = (await world.networks.of_servers([server]))[server]
        first, second = addresses(*vifs)
        floating = await world.networks.take_floating_ip(None, *world.asking())
        await world.networks.lead_floating_ip(server, floating.address, second, *world.asking())
        await world.networks.remove_fixed_ip(server, second, *world.asking())
        assert addresses(*(await world.networks.of_servers([server]))[server]) == [first]
        assert (await world.networks.floating_ip(floating.id, *world.asking())).instance is None
        for address in (second, "10.1.0.250", "2001:db8::1"):
            with pytest.raises(BadRequest, match="could not be found"):
                await world.networks.remove_fixed_ip(server, address, *world.asking())
        for one in (new_uuid(), await world.network("10.9.0.0/24")):
            with pytest.raises(NotFound):
                await world.networks.add_fixed_ip(server, one, *world.asking())

    async def test_fixed_addresses_of_a_shared_network(self, world: NetworksWorld) -> None:
        """Its owner alone chooses addresses there, and who has a port gets and loses what is given."""
        network = await world.network("10.3.0.0/24", by="admin", project_id=THEIRS, shared=True)
        server = await world.server()
        await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        await world.networks.add_fixed_ip(server, network, *world.asking())
        first, second = addresses(*(await world.networks.of_servers([server]))[server])
        await world.networks.remove_fixed_ip(server, first, *world.asking())
        assert addresses(*(await world.networks.of_servers([server]))[server]) == [second]

    async def test_two_servers_want_the_last_address(self, world: NetworksWorld) -> None:
        """One gets it."""
        network = await world.network("10.2.0.0/29")
        servers = [await world.server() for _ in range(2)]
        for server in servers:
            await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        for _ in range(2):
            await world.port(network)
        asked = [world.networks.add_fixed_ip(server, network, *world.asking()) for server in servers]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(type(one).__name__ for one in outcomes) == ["BadRequest", "tuple"]
        vifs = await world.networks.of_servers(servers)
        held = [one for server in servers for one in addresses(*vifs[server])]
        assert len(set(held)) == len(held) == 3

    async def test_a_port_has_room_for_so_many_addresses(self, world: NetworksWorld) -> None:
        """As many as a port of the network service has."""
        network, server = await world.network("10.2.0.0/24"), await world.server()
        await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        for _ in range(world.cloud.networks.settings.max_fixed_ips_per_port - 1):
            await world.networks.add_fixed_ip(server, network, *world.asking())
        with pytest.raises(BadRequest, match="maximum amount"):
            await world.networks.add_fixed_ip(server, network, *world.asking())


async def _of_others(world: NetworksWorld, **fields: Any) -> str:
    return await world.network(by="admin", project_id=THEIRS, **fields)


async def _pool(world: NetworksWorld, cidr: str, name: str, **fields: Any) -> str:
    """Make an external network; return its id."""
    return await world.network(cidr, by="admin", name=name, **{"router:external": True}, **fields)


async def _reachable(world: NetworksWorld) -> tuple[InstanceUuid, InstanceUuid, str]:
    """Make two servers on a network behind a router to the outside; return them, and the network."""
    outside = await _pool(world, "203.0.113.0/24", "outside")
    network = await world.network()
    subnet = await world.subnet(network, "10.1.0.0/24")
    router = await world.make("router", external_gateway_info={"network_id": outside})
    await world.ask("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet})
    servers = [await world.server() for _ in range(2)]
    for server in servers:
        await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
    return servers[0], servers[1], network


def _rule(group: str, *, cidr: str | None = None, remote_group: str | None = None) -> WantedRule:
    said = cidr if cidr is not None or remote_group is not None else "10.0.0.0/8"
    return WantedRule(group=group, protocol="tcp", ports=(22, 23), cidr=said, remote_group=remote_group)
