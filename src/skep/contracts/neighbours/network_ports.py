"""What must hold of the ports of servers: inherit `NetworkPortsContract`, give it `networks`.

The networks are those of Skep's own network service (`cloud`).
"""

from __future__ import annotations

import abc
import asyncio
from ipaddress import ip_network

from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import HOST, OTHER_HOST, THEIRS, NetworksWorld, addresses
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.subnet_addresses import eui64
from skep.domain.vifs import RequestedNetwork, Vif, VifBeside, addresses_of
from skep.neighbours.networks.base import PortsRefused


class NetworkPortsContract(NetworksContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.networks.base.NetworkPorts`."""

    async def test_what_is_wanted_is_made_in_its_order(self, world: NetworksWorld) -> None:
        """A port for each network, with the address that is named; a user's port as it is."""
        first, second = await world.network("10.1.0.0/24", name="one"), await world.network("10.2.0.0/24", name="two")
        brought = await world.port(second, name="brought")
        server = await world.server()
        named = (
            RequestedNetwork(network_id=first, fixed_ip="10.1.0.77", tag="front"),
            RequestedNetwork(port_id=brought["id"]),
            RequestedNetwork(network_id=first),
        )
        [vifs] = await world.given(world.wanted(server, *named))
        assert [(one.network_name, one.made, one.tag) for one in vifs] == [
            ("one", True, "front"),
            ("two", False, None),
            ("one", True, None),
        ]
        assert addresses(*vifs)[:2] == ["10.1.0.77", brought["fixed_ips"][0]["ip_address"]]
        assert len({one.mac_address for one in vifs}) == 3
        for vif in vifs:
            port = await world.shown(vif.id)
            assert (port["device_id"], port["device_owner"]) == (server, "compute:nova")
            assert (port["binding:host_id"], port["project_id"]) == (HOST, world.project)
            assert (port["mac_address"], port["network_id"]) == (vif.mac_address, vif.network_id)

    async def test_a_server_without_networks(self, world: NetworksWorld) -> None:
        """It gets nothing, and others beside it what they want."""
        network = await world.network("10.0.0.0/24")
        without, nothing, other = [await world.server() for _ in range(3)]
        found = await world.given(
            world.wanted(without, networks="none"),
            world.wanted(nothing),
            world.wanted(other, RequestedNetwork(network_id=network)),
        )
        assert [len(one) for one in found] == [0, 0, 1]

    async def test_a_repeat_returns_what_is_there(self, world: NetworksWorld) -> None:
        """Bound to the host that is named now, also for a raised attempt."""
        network = await world.network("10.0.0.0/24")
        port = await world.port(network)
        server = await world.server()
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=port["id"]))
        wanted = world.wanted(server, *named)
        first = await world.given(wanted)
        assert await world.given(wanted) == first
        assert await world.given(world.wanted(server, *named, host=OTHER_HOST)) == first
        await world.becomes(server, attempt=2)
        assert await world.given(world.wanted(server, *named, attempt=2)) == first
        assert {one["binding:host_id"] for one in await world.ports_of(server)} == {HOST}
        assert len(await world.ports_of(server)) == 2

    async def test_a_lower_attempt_gets_nothing(self, world: NetworksWorld) -> None:
        """And does not change what there is."""
        network = await world.network("10.0.0.0/24")
        server = await world.server(attempt=2)
        named = RequestedNetwork(network_id=network)
        assert await world.given(world.wanted(server, named)) == [()]
        assert await world.ports_of(server) == []
        await world.given(world.wanted(server, named, attempt=2, host=OTHER_HOST))
        assert await world.given(world.wanted(server, named)) == [()]
        assert [one["binding:host_id"] for one in await world.ports_of(server)] == [OTHER_HOST]

    async def test_a_server_that_is_gone_gets_nothing(self, world: NetworksWorld) -> None:
        """Nor one that its user wants gone, nor one that nobody knows."""
        network = await world.network("10.0.0.0/24")
        before = await world.counts()
        for server in (
            await world.server(deleted_at=1),
            await world.server(delete_intent_at=1),
            InstanceUuid(new_uuid()),
        ):
            assert await world.given(world.wanted(server, RequestedNetwork(network_id=network))) == [()]
            assert await world.given(world.wanted(server, networks="auto")) == [()]
        assert await world.counts() == before

    async def test_a_network_without_asking_for_one(self, world: NetworksWorld) -> None:
        """It is made once for all servers of the project."""
        servers = [await world.server() for _ in range(4)]
        found = await world.given(*(world.wanted(server, networks="auto") for server in servers))
        assert len({one.network_id for [one] in found}) == 1
        assert len(set(addresses(*(one for [one] in found)))) == 4
        assert (await world.counts())["networks"] == 1

    async def test_ports_that_are_made_anew(self, world: NetworksWorld) -> None:
        """What was made for the server is another port at the same place; its user's is the same, and bound anew."""
        network = await world.network("10.0.0.0/24")
        brought = await world.port(network)
        server = await world.server()
        named = (
            RequestedNetwork(network_id=network, fixed_ip="10.0.0.77", tag="front"),
            RequestedNetwork(port_id=brought["id"]),
            RequestedNetwork(network_id=network),
        )
        [before] = await world.given(world.wanted(server, *named))
        wanted, kept = world.wanted(server, *named, host=""), [vif.id for vif in before]
        counted = await world.counts()
        for _ in range(2):
            after = await world.networks.renew(wanted, kept)
            assert after is not None
            vifs = world.vifs(after)
            assert [(one.made, one.tag) for one in vifs] == [(True, "front"), (False, None), (True, None)]
            assert {one.id for one in vifs} & set(kept) == {brought["id"]}
            assert addresses(vifs[0]) == ["10.0.0.77"]
            assert [one["binding:host_id"] for one in await world.ports_of(server)] == [""] * 3
            assert (await world.networks.of_servers([server]))[server] == vifs, "a repeat changes nothing"
            assert await world.counts() == counted
        await world.networks.bind({server: OTHER_HOST})
        assert {one["binding:host_id"] for one in await world.ports_of(server)} == {OTHER_HOST}

    async def test_no_ports_are_made_anew_for_a_build_that_has_gone_on(self, world: NetworksWorld) -> None:
        """Under another attempt, or to its end: what it has stays."""
        network = await world.network("10.0.0.0/24")
        named = RequestedNetwork(network_id=network)
        for become in ({"attempt": 2}, {"delete_intent_at": 1}):
            server = await world.server()
            [before] = await world.given(world.wanted(server, named))
            await world.becomes(server, **become)
            kept = [vif.id for vif in before]
            assert await world.networks.renew(world.wanted(server, named, host=""), kept) is None
            assert [one["id"] for one in await world.ports_of(server)] == kept

    async def test_one_port_for_two_servers(self, world: NetworksWorld) -> None:
        """One has it. What the other would have had beside it is not made."""
        network = await world.network("10.0.0.0/24")
        port = await world.port(network)
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=port["id"]))
        servers = [await world.server() for _ in range(2)]
        found = await world.networks.allocate([world.wanted(server, *named) for server in servers])
        assert sorted(isinstance(one, PortsRefused) for one in found) == [False, True]
        assert sorted([len(await world.ports_of(server)) for server in servers]) == [0, 2]

    async def test_one_address_for_two_servers(self, world: NetworksWorld) -> None:
        """As with a port, also when both are asked for at once."""
        network = await world.network("10.0.0.0/24")
        named = (RequestedNetwork(network_id=network), RequestedNetwork(network_id=network, fixed_ip="10.0.0.9"))
        servers = [await world.server() for _ in range(2)]
        found = await asyncio.gather(*(world.networks.allocate([world.wanted(one, *named)]) for one in servers))
        assert sorted(isinstance(one, PortsRefused) for [one] in found) == [False, True]
        assert sorted([len(await world.ports_of(server)) for server in servers]) == [0, 2]

    async def test_a_refusal_makes_nothing(self, world: NetworksWorld) -> None:
        """No port, no address, no group, no network of the project's."""
        network = await world.network("10.0.0.0/24")
        small = await world.make("network")
        await world.subnet(small["id"], "10.3.0.0/24", allocation_pools=[{"start": "10.3.0.9", "end": "10.3.0.9"}])
        last = await world.port(small["id"])
        server = await world.server()
        here = RequestedNetwork(network_id=network)
        for there in (
            RequestedNetwork(network_id=small["id"]),
            RequestedNetwork(network_id=new_uuid()),
            RequestedNetwork(port_id=new_uuid()),
            RequestedNetwork(network_id=network, fixed_ip="10.9.9.9"),
        ):
            assert await world.refused(world.wanted(server, here, there))
        assert await world.refused(world.wanted(server, here, security_groups=(new_uuid(),)))
        await world.quota(port=2)
        assert "port" in await world.refused(world.wanted(server, here, here))
        await world.ask("DELETE", f"ports/{last['id']}")
        [vifs] = await world.given(world.wanted(server, here, RequestedNetwork(network_id=small["id"])))
        assert addresses(vifs[1]) == ["10.3.0.9"]

    async def test_a_refused_topology_leaves_none(self, world: NetworksWorld) -> None:
        """No network, no subnet, no router."""
        await world.quota(port=0)
        server = await world.server()
        assert "port" in await world.refused(world.wanted(server, networks="auto"))

    async def test_a_port_of_others_is_not_given(self, world: NetworksWorld) -> None:
        """Not even one on the project's network."""
        network = await world.network("10.0.0.0/24")
        theirs = await world.port(network, by="admin", project_id=THEIRS)
        server = await world.server()
        assert theirs["id"] in await world.refused(world.wanted(server, RequestedNetwork(port_id=theirs["id"])))

    async def test_security_groups(self, world: NetworksWorld) -> None:
        """Those that are named, else the default group; a user's port keeps its own."""
        network = await world.network("10.0.0.0/24")
        web = await world.make("security-group", name="web")
        other = await world.make("security-group", name="other")
        brought = await world.port(network, security_groups=[other["id"]])
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=brought["id"]))
        chosen = await world.choose("named", *named, groups=("web", "default"))
        server = await world.server()
        [vifs] = await world.given(world.wanted(server, *named, security_groups=chosen.security_groups))
        assert [sorted(group.name for group in vif.groups) for vif in vifs] == [["default", "web"], ["other"]]
        assert (await world.shown(brought["id"]))["security_groups"] == [other["id"]]
        plain = await world.server()
        [[vif]] = await world.given(world.wanted(plain, named[0]))
        assert [group.name for group in vif.groups] == ["default"]
        assert web["id"] not in [group.id for group in vif.groups]

    async def test_a_network_without_port_security(self, world: NetworksWorld) -> None:
        """Its ports have no groups; groups that are named are refused."""
        network = await world.network("10.0.0.0/24", port_security_enabled=False)
        web = await world.make("security-group", name="web")
        server = await world.server()
        named = RequestedNetwork(network_id=network)
        assert await world.refused(world.wanted(server, named, security_groups=(web["id"],)))
        [[vif]] = await world.given(world.wanted(server, named))
        assert vif.groups == ()

    async def test_released_ports(self, world: NetworksWorld) -> None:
        """What was made goes, with its address; a user's port stays, free for another server. A repeat is idle."""
        network = await world.network("10.0.0.0/24")
        brought = await world.port(network)
        server, next_one = await world.server(), await world.server()
        named = (
            RequestedNetwork(network_id=network, fixed_ip="10.0.0.9"),
            RequestedNetwork(port_id=brought["id"], tag="t"),
        )
        [vifs] = await world.given(world.wanted(server, *named))
        for _ in range(2):
            await world.networks.release([(server, 1)])
            assert [one["id"] for one in await world.ask("GET", "ports")] == [brought["id"]]
        port = await world.shown(brought["id"])
        assert (port["device_id"], port["device_owner"], port["binding:host_id"]) == ("", "", "")
        assert port["fixed_ips"] == brought["fixed_ips"]
        [again] = await world.given(world.wanted(next_one, *named))
        assert addresses(*again) == addresses(*vifs)

    async def test_release_is_fenced(self, world: NetworksWorld) -> None:
        """Where the attempt was raised or the server has a cell, nothing is released; others beside it are."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        raised, placed, held, unknown = [await world.server() for _ in range(3)] + [InstanceUuid(new_uuid())]
        await world.given(*(world.wanted(one, network) for one in (raised, placed, held)))
        await world.becomes(raised, attempt=2)
        await world.becomes(placed, cell="c")
        await world.networks.release([(one, 1) for one in (raised, placed, held, unknown)])
        assert [len(await world.ports_of(one)) for one in (raised, placed, held)] == [1, 1, 0]

    async def test_two_bindings(self, world: NetworksWorld) -> None:
        """The second one changes nothing of the port until the port follows its server; then it is the only one."""
        network = await world.network("10.0.0.0/24")
        brought = await world.port(network)
        server, other = [await world.server() for _ in range(2)]
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=brought["id"]))
        [vifs, _] = await world.given(world.wanted(server, *named), world.wanted(other, named[0]))
        for _ in range(2):
            assert await world.networks.bind_beside({server: OTHER_HOST}) == {}
            for vif in vifs:
                assert await world.bindings(vif.id) == {HOST: "ACTIVE", OTHER_HOST: "INACTIVE"}
            assert {one["binding:host_id"] for one in await world.ports_of(server)} == {HOST}
        there = {vif.id: VifBeside(host=OTHER_HOST, type=vif.type, details=vif.details) for vif in vifs}
        assert await world.networks.plugged_beside({server: OTHER_HOST, other: OTHER_HOST}) == {
            server: there,
            other: {},
        }
        await world.networks.bind({server: HOST}, {server: OTHER_HOST})
        assert await world.bindings(vifs[0].id) == {HOST: "ACTIVE", OTHER_HOST: "INACTIVE"}
        for _ in range(2):
            await world.networks.bind({server: OTHER_HOST})
            for vif in vifs:
                assert await world.bindings(vif.id) == {OTHER_HOST: "ACTIVE"}
        assert (await world.networks.of_servers([server]))[server] == vifs
        assert {one["binding:host_id"] for one in await world.ports_of(other)} == {HOST}

    async def test_hosts_of_ports(self, world: NetworksWorld) -> None:
        """The host that has a port first; other bindings of those servers only for which they are asked for."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        one, other, without = [await world.server() for _ in range(3)]
        [[first], [second]] = await world.given(world.wanted(one, network), world.wanted(other, network))
        await world.networks.bind_beside({one: OTHER_HOST, other: OTHER_HOST})
        assert await world.networks.bound_to([one, other, without], [one]) == {
            one: {first.id: (HOST, OTHER_HOST)},
            other: {second.id: (HOST,)},
            without: {},
        }
        looked_at = await world.networks.look_at([one, other, without], [one, without], [one])
        assert looked_at.vifs == await world.networks.of_servers([one, other, without])
        assert looked_at.hosts == {one: {first.id: (HOST, OTHER_HOST)}, without: {}}
        await world.networks.bind({one: OTHER_HOST, other: ""})
        assert await world.networks.bound_to([one, other], [one, other]) == {
            one: {first.id: (OTHER_HOST,)},
            other: {second.id: ("",)},
        }

    async def test_a_second_binding_that_comes_to_nothing(self, world: NetworksWorld) -> None:
        """It goes, and the port stays where it is; one that nobody made for the host is made then."""
        network = await world.network("10.0.0.0/24")
        server = await world.server()
        [[vif]] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        await world.networks.bind_beside({server: OTHER_HOST})
        await world.networks.bind({server: HOST})
        assert await world.bindings(vif.id) == {HOST: "ACTIVE"}
        await world.networks.bind_beside({server: OTHER_HOST})
        await world.networks.bind({server: "third"})
        assert await world.bindings(vif.id) == {"third": "ACTIVE"}
        await world.networks.bind_beside({server: OTHER_HOST})
        await world.networks.bind({server: ""})
        assert await world.bindings(vif.id) == {}
        assert await world.networks.bind_beside({InstanceUuid(new_uuid()): HOST}) == {}

    async def test_a_port_that_is_given_back_keeps_no_binding(self, world: NetworksWorld) -> None:
        network = await world.network("10.0.0.0/24")
        brought = await world.port(network)
        server = await world.server()
        await world.given(world.wanted(server, RequestedNetwork(port_id=brought["id"])))
        await world.networks.bind_beside({server: OTHER_HOST})
        await world.ends(server)
        await world.networks.release([(server, 1)])
        assert (await world.shown(brought["id"]))["device_id"] == ""
        assert await world.bindings(brought["id"]) == {}

    async def test_the_end_of_a_server(self, world: NetworksWorld) -> None:
        """What was made for it goes, what a user brought stays; before its end is noted, or with that."""
        network = await world.network("10.0.0.0/24")
        brought = await world.port(network)
        server = await world.server()
        named = (RequestedNetwork(network_id=network), RequestedNetwork(port_id=brought["id"]))
        await world.given(world.wanted(server, *named))
        await world.becomes(server, cell="c")
        await world.ends(server)
        [left] = await world.ask("GET", "ports", by="admin")
        assert (left["id"], left["device_id"]) == (brought["id"], "")
        await world.ends(server)
        assert await world.networks.orphans() == {}

    async def test_ports_of_a_server_that_does_not_live(self, world: NetworksWorld) -> None:
        """They are found and released; those of one that lives are not."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        gone, lives = await world.server(), await world.server()
        [[port], _] = await world.given(*(world.wanted(one, network) for one in (gone, lives)))
        assert await world.networks.orphans() == {}
        await world.becomes(gone, cell="c", deleted_at=world.cloud.clock.now())
        assert await world.networks.orphans() == {gone: [port.id]}
        assert [await world.networks.release_orphans(one) for one in (gone, lives)] == [True, False]
        assert await world.networks.orphans() == {}
        assert [len(await world.ports_of(one)) for one in (gone, lives)] == [0, 1]

    async def test_nothing_is_made_twice(self, world: NetworksWorld) -> None:
        """Whoever looks for doubles finds none."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        [vifs] = await world.given(world.wanted(server, network, network))
        await world.networks.drop_doubles([server])
        assert await self._now(world, server) == vifs

    async def test_ports_are_bound(self, world: NetworksWorld) -> None:
        """To the host of each server, or to none; a repeat changes nothing, and what nobody knows is left out."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        first, second = [await world.server() for _ in range(2)]
        await world.given(*(world.wanted(one, network, network) for one in (first, second)))
        hosts = {first: OTHER_HOST, second: "", InstanceUuid(new_uuid()): HOST}
        await world.networks.bind(hosts)
        once = [*await world.ports_of(first), *await world.ports_of(second)]
        assert [one["binding:host_id"] for one in once] == [OTHER_HOST, OTHER_HOST, "", ""]
        await world.networks.bind(hosts)
        assert [*await world.ports_of(first), *await world.ports_of(second)] == once

    async def test_interfaces_are_told_as_they_are_now(self, world: NetworksWorld) -> None:
        """Every server has an entry; what users change is told."""
        network = await world.network("10.0.0.0/24", name="before", mtu=1400)
        server, other = await world.server(), await world.server()
        [[made]] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        found = await world.networks.of_servers([server, other])
        assert found == {server: (made,), other: ()}
        assert (made.mtu, made.network_name) == (1400, "before")
        await world.ask("PUT", f"networks/{network}", {"network": {"name": "after"}})
        change = {"port": {"fixed_ips": [{"ip_address": "10.0.0.99"}]}}
        await world.ask("PUT", f"ports/{made.id}", change)
        [vif] = await self._now(world, server)
        assert (vif.network_name, addresses(vif)) == ("after", ["10.0.0.99"])
        await world.ask("DELETE", f"ports/{made.id}")
        assert await self._now(world, server) == ()

    async def test_what_is_told_of_subnets(self, world: NetworksWorld) -> None:
        """IPv4, DHCPv6 and SLAAC of one network: one address of each, with what a guest needs."""
        network = await world.network()
        said = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
        slaac = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        route = {"destination": "10.9.0.0/16", "nexthop": "10.0.0.254"}
        v4 = await world.subnet(
            network, "10.0.0.0/24", dns_nameservers=["192.0.2.53"], host_routes=[route], enable_dhcp=False
        )
        stateful = await world.subnet(network, "2001:db8:1::/64", **said)
        automatic = await world.subnet(network, "2001:db8:2::/64", **slaac)
        server = await world.server()
        [[vif]] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        of = {one.id: one for one in vif.subnets}
        assert [one.id for one in vif.subnets] == [v4, stateful, automatic]
        assert [one.version for one in vif.subnets] == [4, 6, 6]
        assert [len(one.addresses) for one in vif.subnets] == [1, 1, 1]
        assert (of[v4].gateway, of[v4].dns, of[v4].dhcp) == ("10.0.0.1", ("192.0.2.53",), False)
        assert [(one.destination, one.nexthop) for one in of[v4].routes] == [("10.9.0.0/16", "10.0.0.254")]
        assert [one.ipv6_address_mode for one in vif.subnets] == [None, "dhcpv6-stateful", "slaac"]
        assert of[automatic].addresses[0].address == str(eui64(ip_network("2001:db8:2::/64"), vif.mac_address))
        port = await world.shown(vif.id)
        assert [one["ip_address"] for one in port["fixed_ips"]] == addresses(vif)

    async def test_several_addresses_of_one_subnet(self, world: NetworksWorld) -> None:
        """A user's port may have them."""
        network = await world.network("10.0.0.0/24")
        wanted = ["10.0.0.9", "10.0.0.7"]
        port = await world.port(network, fixed_ips=[{"ip_address": one} for one in wanted])
        [[vif]] = await world.given(world.wanted(await world.server(), RequestedNetwork(port_id=port["id"])))
        assert addresses(vif) == wanted
        assert len(vif.subnets) == 1

    async def test_floating_addresses(self, world: NetworksWorld) -> None:
        """They stand with the fixed address that they lead to, until they lead elsewhere."""
        network = await world.network()
        subnet = await world.subnet(network, "10.0.0.0/24")
        outside = await world.network("203.0.113.0/24", by="admin", **{"router:external": True})
        router = await world.make("router", external_gateway_info={"network_id": outside})
        await world.ask("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet})
        server = await world.server()
        [[made]] = await world.given(world.wanted(server, RequestedNetwork(network_id=network)))
        floating = await world.make("floatingip", floating_network_id=outside, port_id=made.id)
        [vif] = await self._now(world, server)
        assert vif.subnets[0].addresses[0].floating == (floating["floating_ip_address"],)
        shown = [(one.address, one.kind) for one in addresses_of([vif])[made.network_name]]
        assert shown == [(addresses(made)[0], "fixed"), (floating["floating_ip_address"], "floating")]
        await world.networks.release([(server, 1)])
        left = await world.ask("GET", f"floatingips/{floating['id']}")
        assert (left["port_id"], left["fixed_ip_address"]) == (None, None)

    async def _now(self, world: NetworksWorld, server: InstanceUuid) -> tuple[Vif, ...]:
        return (await world.networks.of_servers([server]))[server]
