"""What must hold of what hosts bring of networks: inherit `NetworksOfHostsContract`, give it `networks`.

It is of network services whose ports Skep's own hosts bring: the embedded one. The networks are those of `cloud`.
"""

from __future__ import annotations

import abc
from typing import Any

from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import HOST, OTHER_HOST, NetworksWorld
from skep.contracts.neighbours.served import SteppedClock
from skep.domain.host_networks import FloatingAddress, HostLook, HostNetworks, PluggedPort, Segment
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import RequestedNetwork, Vif

HERE, THERE = "192.0.2.1", "192.0.2.2"
A_DAY = 86_401


class NetworksOfHostsContract(NetworksContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.networks.hosts.NetworksOfHosts`."""

    async def test_a_host_without_ports_brings_nothing(self, world: NetworksWorld) -> None:
        """Whether it has a tunnel or not; a port that no server has is not plugged."""
        network = await world.network("10.0.0.0/24")
        await world.port(network, by="admin", **{"binding:host_id": HOST})
        for tunnel in (None, HERE):
            found = (await looked(world, tunnel=tunnel)).networks
            assert (found.segments, found.groups, found.routers) == ((), (), ())
            assert found.version

    async def test_the_ports_of_its_servers(self, world: NetworksWorld) -> None:
        """With all that guests are told of them, and of the subnets of their networks."""
        network = await world.network(mtu=1400)
        subnet = await world.subnet(network, "10.0.0.0/24", dns_nameservers=["192.0.2.53"])
        server, [vif] = await served(world, RequestedNetwork(network_id=network, fixed_ip="10.0.0.77"))
        await served(world, RequestedNetwork(network_id=network), host=OTHER_HOST)
        [segment] = (await looked(world)).networks.segments
        assert (segment.network, segment.mtu, segment.admin_state_up, segment.peers) == (network, 1400, True, ())
        [told] = segment.subnets
        assert (told.id, told.cidr, told.gateway_ip) == (subnet, "10.0.0.0/24", "10.0.0.1")
        assert (told.ip_version, told.enable_dhcp, told.dns_nameservers) == (4, True, ("192.0.2.53",))
        [port] = segment.ports
        assert (port.id, port.server, port.mac_address) == (vif.id, server, vif.mac_address)
        assert (port.addresses, port.host_name) == (("10.0.0.77",), "host-10-0-0-77")
        assert (port.admin_state_up, port.port_security_enabled, len(port.groups)) == (True, True, 1)

    async def test_the_number_of_a_network_is_its_own_for_its_life(self, world: NetworksWorld) -> None:
        """Every host hears the same, and that of a network that is gone is not the next one's."""
        first, second = await world.network("10.1.0.0/24"), await world.network("10.2.0.0/24")
        await served(world, RequestedNetwork(network_id=first), RequestedNetwork(network_id=second))
        gone, _ = await served(world, RequestedNetwork(network_id=second), host=OTHER_HOST)
        numbers = {one.network: one.number for one in (await looked(world)).networks.segments}
        assert sorted(numbers) == sorted((first, second))
        assert len(set(numbers.values())) == 2
        [there] = (await looked(world, OTHER_HOST)).networks.segments
        assert there.number == numbers[second]
        third = await world.network("10.3.0.0/24")
        await world.becomes(gone, cell=None)
        await served(world, RequestedNetwork(network_id=third), host=OTHER_HOST)
        found = {one.network: one.number for one in (await looked(world, OTHER_HOST)).networks.segments}
        assert found[second] == numbers[second]
        assert found[third] not in numbers.values()

    async def test_hosts_of_one_network_hear_of_each_other(self, world: NetworksWorld, clock: SteppedClock) -> None:
        """Once they say where their tunnels are; one that moves, leaves or is silent for long is no peer there."""
        network = await world.network("10.0.0.0/24")
        await served(world, RequestedNetwork(network_id=network))
        server, _ = await served(world, RequestedNetwork(network_id=network), host=OTHER_HOST)
        assert await peers(world, HOST, HERE) == ()
        assert await peers(world, OTHER_HOST, None) == (HERE,)
        assert await peers(world, HOST, HERE) == ()
        before = await looked(world, HOST, HERE)
        assert await peers(world, OTHER_HOST, THERE) == (HERE,)
        assert await concerns(world, before)
        assert await peers(world, HOST, HERE) == (THERE,)
        await looked(world, OTHER_HOST, "192.0.2.3")
        assert await peers(world, HOST, HERE) == ("192.0.2.3",)
        clock.advance(A_DAY)
        before = await looked(world, HOST, HERE)
        assert before.networks.segments[0].peers == ()
        await looked(world, OTHER_HOST, "192.0.2.3")
        assert await concerns(world, before)
        assert await peers(world, HOST, HERE) == ("192.0.2.3",)
        await world.networks.bind({server: ""})
        assert await peers(world, HOST, HERE) == ()

    async def test_rules_of_groups(self, world: NetworksWorld) -> None:
        """Those of the ports' groups, with the members of the groups that they name."""
        network = await world.network("10.0.0.0/24")
        web, data = [(await world.make("security-group", name=name))["id"] for name in ("web", "data")]
        rule = {"security_group_id": data, "direction": "ingress", "protocol": "tcp", "remote_group_id": web}
        await world.make("security-group-rule", **rule, port_range_min=5432, port_range_max=5433)
        named = RequestedNetwork(network_id=network)
        await served(world, named, groups=(data,))
        _, [elsewhere] = await served(world, named, host=OTHER_HOST, groups=(web,))
        look = await looked(world)
        groups = {one.id: one for one in look.networks.groups}
        assert groups.keys() == {web, data}
        [found] = [one for one in groups[data].rules if one.direction == "ingress"]
        assert (found.protocol, found.ethertype, found.remote_group) == ("tcp", "IPv4", web)
        assert (found.port_range_min, found.port_range_max, found.remote_ip_prefix) == (5432, 5433, None)
        [subnet] = elsewhere.subnets
        assert groups[web].members == (subnet.addresses[0].address,)
        assert groups[data].members == ()
        _, [more] = await served(world, named, host=OTHER_HOST, groups=(web,))
        assert await concerns(world, look), "a group that a rule names got a member"
        [group] = [one for one in (await looked(world)).networks.groups if one.id == web]
        assert len(group.members) == 2
        assert more.subnets[0].addresses[0].address in group.members

    async def test_routers_and_floating_addresses(self, world: NetworksWorld) -> None:
        """A router has all of its legs, and a host those floating addresses that lead to ports of its own."""
        outside = await world.network("203.0.113.0/24", by="admin", **{"router:external": True})
        near, far = await world.network(), await world.network()
        subnets = [await world.subnet(near, "10.1.0.0/24"), await world.subnet(far, "10.2.0.0/24")]
        router = await world.make("router", external_gateway_info={"network_id": outside})
        for subnet in subnets:
            await world.ask("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet})
        _, [vif] = await served(world, RequestedNetwork(network_id=near))
        before = await looked(world)
        [found] = before.networks.routers
        legs = {(one.network, one.subnet, one.address) for one in found.legs}
        assert legs == {(near, subnets[0], "10.1.0.1"), (far, subnets[1], "10.2.0.1")}
        assert all(one.mac_address for one in found.legs)
        assert (found.id, found.outside, found.enable_snat, found.floating) == (router["id"], True, True, ())
        assert {one.network: len(one.ports) for one in before.networks.segments} == {near: 1, far: 0}
        floating = await world.make("floatingip", floating_network_id=outside, port_id=vif.id)
        assert await concerns(world, before)
        [found] = (await looked(world)).networks.routers
        led = FloatingAddress(
            address=floating["floating_ip_address"],
            fixed_address=vif.subnets[0].addresses[0].address,
            port=vif.id,
        )
        assert found.floating == (led,)
        await served(world, RequestedNetwork(network_id=far), host=OTHER_HOST)
        [there] = (await looked(world, OTHER_HOST)).networks.routers
        assert (there.legs, there.floating) == (found.legs, ())

    async def test_a_second_binding(self, world: NetworksWorld) -> None:
        """The host that is to have a server soon brings its ports, but does not answer for its floating address."""
        network = await world.network("10.0.0.0/24")
        server, [vif] = await served(world, RequestedNetwork(network_id=network))
        await looked(world, HOST, HERE)
        before = await looked(world, OTHER_HOST, THERE)
        assert before.networks.segments == ()
        await world.networks.bind_beside({server: OTHER_HOST})
        assert await concerns(world, before)
        during = await looked(world, OTHER_HOST, THERE)
        assert [(one.id, one.server) for one in ports(during.networks)] == [(vif.id, server)]
        assert await peers(world, HOST, HERE) == (THERE,)
        assert await peers(world, OTHER_HOST, THERE) == (HERE,)
        await world.networks.bind({server: OTHER_HOST})
        assert (await looked(world, HOST, HERE)).networks.segments == ()
        assert ports((await looked(world, OTHER_HOST, THERE)).networks) == ports(during.networks)

    async def test_a_look_holds_until_something_of_it_changes(self, world: NetworksWorld) -> None:
        """What changes elsewhere is no change, and the version is the same as long as the content is."""
        network, other = await world.network("10.1.0.0/24"), await world.network("10.2.0.0/24")
        server, [vif] = await served(world, RequestedNetwork(network_id=network))
        look = await looked(world)
        assert not await concerns(world, look)
        await served(world, RequestedNetwork(network_id=other), host=OTHER_HOST, groups=(await group(world),))
        await world.ask("PUT", f"networks/{other}", {"network": {"mtu": 1300}})
        assert not await concerns(world, look)
        assert (await looked(world)).networks == look.networks
        rule = {"security_group_id": vif.groups[0].id, "direction": "ingress", "protocol": "icmp"}
        changes: list[tuple[str, str, Any]] = [
            ("POST", "security-group-rules", {"security_group_rule": rule}),
            ("PUT", f"networks/{network}", {"network": {"mtu": 1400}}),
            ("POST", "subnets", {"subnet": {"network_id": network, "cidr": "10.3.0.0/24", "ip_version": 4}}),
            ("PUT", f"ports/{vif.id}", {"port": {"admin_state_up": False}}),
            ("PUT", f"ports/{vif.id}", {"port": {"fixed_ips": [{"ip_address": "10.1.0.99"}]}}),
            ("PUT", f"ports/{vif.id}", {"port": {"security_groups": []}}),
        ]
        for method, path, body in changes:
            await world.ask(method, path, body)
            assert await concerns(world, look), (method, path, body)
            after = await looked(world)
            assert after.networks.version != look.networks.version, (method, path, body)
            look = after
        await world.becomes(server, deleted_at=1)
        await world.networks.release_orphans(server)
        assert await concerns(world, look)
        assert (await looked(world)).networks.segments == ()

    async def test_changes_are_told_once(self, world: NetworksWorld) -> None:
        """Each behind the one before; who asks behind the last hears of none."""
        first = await changed(world, 0)
        network = await world.network("10.0.0.0/24")
        second = await changed(world, first[0])
        assert second[0] > first[0]
        assert network in second[1]
        assert await changed(world, second[0]) == (second[0], set())


async def served(
    world: NetworksWorld, *named: RequestedNetwork, host: str = HOST, groups: tuple[str, ...] = ()
) -> tuple[InstanceUuid, tuple[Vif, ...]]:
    """Give a server interfaces on a host; return both."""
    server = await world.server()
    chosen = await world.choose("named", *named, groups=groups)
    [vifs] = await world.given(world.wanted(server, *named, host=host, security_groups=chosen.security_groups))
    return server, vifs


async def group(world: NetworksWorld) -> str:
    """Make a group, and return its id."""
    return str((await world.make("security-group", name="other"))["id"])


async def looked(world: NetworksWorld, host: str = HOST, tunnel: str | None = None) -> HostLook:
    """Look at what a host has to bring."""
    found = await world.networks.look_at_host(host, tunnel)
    assert found is not None
    return found


async def changed(world: NetworksWorld, since: int) -> tuple[int, set[str]]:
    """Return the last change, and what changed since another."""
    found = await world.networks.host_changes(since)
    assert found is not None
    assert not found.many
    return found.change, set(found.subjects)


async def concerns(world: NetworksWorld, look: HostLook) -> bool:
    """Tell whether something of a look has changed."""
    _, subjects = await changed(world, look.change)
    return not subjects.isdisjoint(look.subjects)


async def peers(world: NetworksWorld, host: str, tunnel: str | None) -> tuple[str, ...]:
    """Return the peers of a host on its only network."""
    segments: tuple[Segment, ...] = (await looked(world, host, tunnel)).networks.segments
    return segments[0].peers if segments else ()


def ports(networks: HostNetworks) -> list[PluggedPort]:
    """Return all ports of a host."""
    return [port for segment in networks.segments for port in segment.ports]
