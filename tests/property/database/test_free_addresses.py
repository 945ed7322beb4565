"""Subnets and ports of one network under all units in any order: whatever is made, changed and deleted.

No address has two ports, every address of a port is on its subnet, and a subnet is full only when it is: an address
that is free in a pool is found wherever the last search ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from skep.contracts.databases import new_in_memory
from skep.database.api import network_rows
from skep.database.api.network_rows import NETWORKS, PORTS, SUBNETS
from skep.database.api.network_tables import port_addresses
from skep.domain.ids import new_uuid
from skep.domain.networking import AllocationPool, NetworkResource, Subnet
from skep.domain.subnet_addresses import from_key
from skep.standalone.networks import networks, ports, subnets
from skep.standalone.networks.bodies import NewNetwork, NewPort, NewSubnet, PortChanges, SubnetChanges, WantedIp
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.refusals import InTheWay
from skep.standalone.networks.settings import NetworksSettings
from tests.support.samples import examples

T = TypeVar("T")

CIDRS = ("10.0.0.0/29", "10.0.1.0/30", "10.0.2.0/31", "10.0.3.7/32", "2001:db8::/125", "2001:db8:1::/127")
AUTOMATIC = "2001:db8:2::/64"
PLACES = st.sets(st.integers(0, 7), max_size=6)
"""Of the addresses of a subnet that are in its pools."""
PROJECT = "a project"


class SubnetsOfANetwork(RuleBasedStateMachine):
    made_subnets = Bundle("made_subnets")
    made_ports = Bundle("made_ports")

    def __init__(self) -> None:
        super().__init__()
        self.engine = new_in_memory("api")
        self.connection = self.engine.connect()
        self.now = 100

    def teardown(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def unit(self, do: Callable[[NetworkWork], T]) -> T:
        """Do one unit of work as the service does: all of it or nothing."""
        self.now += 1
        caller = NetworkCaller(project_id=PROJECT, is_admin=True)
        with self.connection.begin():
            return do(
                NetworkWork(
                    connection=self.connection,
                    caller=caller,
                    settings=NetworksSettings(identity_url="http://identity"),
                    now=self.now,
                )
            )

    def base(self) -> NetworkResource:
        return NetworkResource(id=new_uuid(), project_id=PROJECT, created_at=self.now, updated_at=self.now)

    def subnets(self) -> list[Subnet]:
        return self.unit(lambda work: subnets.of_network(work.connection, self.network_id))

    def subnet(self, subnet_id: str) -> Subnet | None:
        return next((one for one in self.subnets() if one.id == subnet_id), None)

    def taken(self, subnet_id: str) -> dict[int, str]:
        rows = self.unit(
            lambda work: list(
                work.connection.execute(port_addresses.select().where(port_addresses.c.subnet_id == subnet_id))
            )
        )
        return {int(row.address, 16): row.port_id for row in rows}

    def free(self, subnet: Subnet) -> set[int]:
        return in_pools(subnet) - self.taken(subnet.id).keys()

    def attempt(self, do: Callable[[NetworkWork], T]) -> T | str:
        """Return what a unit returns, or why it cannot be."""
        try:
            return self.unit(do)
        except InTheWay as refusal:
            return str(refusal.type)

    # --- what is done ---

    @initialize()
    def begin(self) -> None:
        self.network_id = self.unit(lambda work: networks.create(work, NewNetwork(), self.base())).id

    @rule(target=made_subnets, cidr=st.sampled_from(CIDRS), places=PLACES)
    def make_subnet(self, cidr: str, places: set[int]) -> str:
        there = next((one for one in self.subnets() if one.cidr == cidr), None)
        if there is not None:
            return there.id
        said = NewSubnet(
            network_id=self.network_id,
            ip_version=ip_network(cidr).version,
            cidr=cidr,
            gateway_ip=None,
            enable_dhcp=False,
            allocation_pools=pools_of(cidr, places),
        )
        return self.unit(lambda work: subnets.create(work, said, self.base())).id

    @rule(target=made_subnets)
    def make_automatic_subnet(self) -> str:
        there = next((one for one in self.subnets() if one.cidr == AUTOMATIC), None)
        if there is not None:
            return there.id
        said = NewSubnet(network_id=self.network_id, ip_version=6, cidr=AUTOMATIC, ipv6_address_mode="slaac")
        made = self.unit(lambda work: subnets.create(work, said, self.base()))
        assert len(self.taken(made.id)) == self.unit(lambda work: network_rows.count(work.connection, PORTS))
        return made.id

    @rule(subnet_id=made_subnets, places=PLACES)
    def change_pools(self, subnet_id: str, places: set[int]) -> None:
        subnet = self.subnet(subnet_id)
        if subnet is None or subnet.cidr == AUTOMATIC:
            return
        changes = SubnetChanges(allocation_pools=pools_of(subnet.cidr, places))
        self.unit(lambda work: subnets.update(work, subnet, changes))

    @rule(subnet_id=made_subnets)
    def delete_subnet(self, subnet_id: str) -> None:
        subnet = self.subnet(subnet_id)
        if subnet is None:
            return
        in_use = subnet.cidr != AUTOMATIC and bool(self.taken(subnet_id))
        refused = self.attempt(lambda work: subnets.delete(work, subnet))
        assert refused == ("SubnetInUse" if in_use else None)

    @rule(target=made_ports)
    def make_port(self) -> str:
        candidates: dict[int, bool] = {}
        for subnet in self.subnets():
            if subnet.cidr != AUTOMATIC:
                version = subnet.ip_version
                candidates[version] = candidates.get(version, False) or bool(self.free(subnet))
        made = self.attempt(lambda work: ports.create(work, self.said(), self.base()).id)
        assert (made == "IpAddressGenerationFailure") is not all(candidates.values()), (candidates, made)
        return made

    @rule(target=made_ports, subnet_id=made_subnets)
    def make_port_on(self, subnet_id: str) -> str:
        subnet = self.subnet(subnet_id)
        if subnet is None or subnet.cidr == AUTOMATIC:
            return ""
        free = self.free(subnet)
        made = self.attempt(lambda work: ports.create(work, self.said([WantedIp(subnet_id)]), self.base()).id)
        if not free:
            assert made == "IpAddressGenerationFailure"
        else:
            assert next(number for number, holder in self.taken(subnet_id).items() if holder == made) in free
        return made

    @rule(target=made_ports, subnet_id=made_subnets, place=st.integers(0, 7), beside=st.booleans())
    def make_port_with(self, subnet_id: str, place: int, beside: bool) -> str:
        """An address that is named; beside another one of the same subnet, which then is not that one."""
        subnet = self.subnet(subnet_id)
        if subnet is None or subnet.cidr == AUTOMATIC:
            return ""
        address = usable(subnet.cidr)[place % len(usable(subnet.cidr))]
        wanted = [WantedIp(subnet_id)] * beside + [WantedIp(subnet_id, str(address))]
        free, taken = self.free(subnet), self.taken(subnet_id)
        made = self.attempt(lambda work: ports.create(work, self.said(wanted), self.base()).id)
        if int(address) in taken:
            assert made == "IpAddressAlreadyAllocated"
        elif beside and not free - {int(address)}:
            assert made == "IpAddressGenerationFailure"
        else:
            assert self.taken(subnet_id)[int(address)] == made
        return made

    @rule(port_id=made_ports, subnet_id=made_subnets, place=st.none() | st.integers(0, 7))
    def change_addresses(self, port_id: str, subnet_id: str, place: int | None) -> None:
        port = self.unit(lambda work: network_rows.get(work.connection, PORTS, port_id))
        subnet = self.subnet(subnet_id)
        if port is None or subnet is None or subnet.cidr == AUTOMATIC:
            return
        taken = self.taken(subnet_id)
        others = {number for number, holder in taken.items() if holder != port_id}
        address = None if place is None else usable(subnet.cidr)[place % len(usable(subnet.cidr))]
        wanted = WantedIp(subnet_id, None if address is None else str(address))
        done = self.attempt(lambda work: ports.update(work, port, PortChanges(fixed_ips=(wanted,))).id)
        now = [number for number, holder in self.taken(subnet_id).items() if holder == port_id]
        if address is not None:
            assert done == ("IpAddressAlreadyAllocated" if int(address) in others else port_id)
            assert done != port_id or now == [int(address)]
        elif port_id in taken.values():
            assert done == port_id, "the port keeps what it has"
            assert len(now) == 1
        else:
            assert done == (port_id if in_pools(subnet) - others else "IpAddressGenerationFailure")

    @rule(port_id=consumes(made_ports))
    def delete_port(self, port_id: str) -> None:
        port = self.unit(lambda work: network_rows.get(work.connection, PORTS, port_id))
        if port is not None:
            self.unit(lambda work: ports.delete(work, port))

    def said(self, wanted: Sequence[WantedIp] | None = None) -> NewPort:
        chosen: dict[str, Any] = {} if wanted is None else {"fixed_ips": tuple(wanted)}
        return NewPort(network_id=self.network_id, port_security_enabled=False, **chosen)

    # --- what holds ---

    @invariant()
    def addresses_are_of_one_port_and_on_their_subnet(self) -> None:
        by_id = {subnet.id: subnet for subnet in self.unit(lambda work: network_rows.where(work.connection, SUBNETS))}
        rows = self.unit(lambda work: list(work.connection.execute(sa.select(port_addresses))))
        there = {port.id for port in self.unit(lambda work: network_rows.where(work.connection, PORTS))}
        for row in rows:
            subnet = by_id[row.subnet_id]
            address = from_key(row.address, subnet.ip_version)
            assert str(address) == row.ip_address
            assert address in ip_network(subnet.cidr)
            assert row.port_id in there
        assert len({(row.subnet_id, row.ip_address) for row in rows}) == len(rows)

    @invariant()
    def the_network_stays(self) -> None:
        assert self.unit(lambda work: network_rows.count(work.connection, NETWORKS)) == 1


def usable(cidr: str) -> list[Any]:
    network = ip_network(cidr)
    return list(network.hosts()) if network.version == 4 or network.prefixlen > 126 else list(network)[1:]


def pools_of(cidr: str, places: set[int]) -> tuple[AllocationPool, ...]:
    """Return pools of one address each."""
    every = usable(cidr)
    return tuple(AllocationPool(str(every[place]), str(every[place])) for place in places if place < len(every))


def in_pools(subnet: Subnet) -> set[int]:
    return {
        number
        for pool in subnet.allocation_pools
        for number in range(int(ip_address(pool.start)), int(ip_address(pool.end)) + 1)
    }


SubnetsOfANetwork.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestSubnetsOfANetwork = SubnetsOfANetwork.TestCase
