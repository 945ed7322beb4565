"""What drivers with the capability `networks` must do: a part of `skep.contracts.drivers.DriverContract`."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from skep.compute.drivers.base import Driver, NetworksDriver
from skep.domain.host_networks import Group, GroupRule, HostNetworks, PluggedPort, Segment, SegmentSubnet, versioned
from skep.domain.instances import Instance


class HostNetworksContract:
    """Tests of the protocol `skep.compute.drivers.base.NetworksDriver`. Where the driver wants none none is tried."""

    def brought(self, driver: Driver) -> HostNetworks | None:  # noqa: ARG002
        """Return the networks that are there; None where a test cannot look at them."""
        return None

    async def test_networks_are_brought_and_taken_away(self, driver: Driver, small: Instance) -> None:
        """Before the guests of their ports, any number of times, by another run of the driver as well."""
        if not isinstance(driver, NetworksDriver) or not driver.wants_networks:
            pytest.skip("this driver brings no networks")
        tunnel = driver.tunnel_address()
        assert tunnel is None or str(ip_address(tunnel)) == tunnel
        for wanted in (_networks(small, "10.0.0.5"), _networks(small, "10.0.0.6"), versioned(HostNetworks())):
            for _ in range(2):
                await driver.networks(wanted)
                assert self.brought(driver) in (None, wanted)


def _networks(instance: Instance, address: str) -> HostNetworks:
    """Return a network with one port."""
    port = PluggedPort(
        id="11111111-2222-4333-8444-555555555555",
        server=instance.uuid,
        mac_address="fa:16:3e:00:00:05",
        addresses=(address,),
        host_name=instance.hostname,
        groups=("group",),
    )
    subnet = SegmentSubnet(id="subnet", cidr="10.0.0.0/24", ip_version=4, gateway_ip="10.0.0.1")
    segment = Segment(network="net", number=5, mtu=1400, subnets=(subnet,), ports=(port,), peers=("192.0.2.9",))
    rule = GroupRule(direction="ingress", ethertype="IPv4", remote_group="group")
    group = Group(id="group", rules=(rule,), members=(address,))
    return versioned(HostNetworks(segments=(segment,), groups=(group,)))
