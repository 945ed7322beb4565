"""A free address among thousands that are given: it is found, by a few statements, wherever it is."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import sqlalchemy as sa

from skep.database.api import network_rows
from skep.database.api.network_rows import NETWORKS, PORTS, SUBNETS
from skep.database.api.network_tables import port_addresses
from skep.database.api.port_addresses import give_back, next_free, take_many, take_next
from skep.domain.networking import AllocationPool, Network, Port, Subnet
from skep.domain.subnet_addresses import key, pools_beside

AS_ALL: dict[str, Any] = {"project_id": "mine", "created_at": 1, "updated_at": 1}
FIRST = 2
"""The gateway has the first one."""


def _subnet(connection: sa.Connection, cidr: str, **more: Any) -> Subnet:
    network_rows.insert(connection, NETWORKS, Network(id="network", **AS_ALL))
    pools = pools_beside(ip_network(cidr), str(ip_network(cidr)[1]))
    version = ip_network(cidr).version
    values = {"allocation_pools": pools, **AS_ALL, **more}
    subnet = Subnet(id="subnet", network_id="network", ip_version=version, cidr=cidr, **values)
    network_rows.insert(connection, SUBNETS, subnet)
    port = Port(id="port", network_id="network", mac_address="fa:16:3e:00:00:01", **AS_ALL)
    network_rows.insert(connection, PORTS, port)
    return subnet


def _give(connection: sa.Connection, subnet: Subnet, numbers: range, free: set[int]) -> None:
    first = ip_network(subnet.cidr).network_address
    rows = [
        {"subnet_id": "subnet", "address": key(address), "port_id": "port", "ip_address": str(address), "position": 0}
        for number in numbers
        if number not in free
        for address in [ip_address(int(first) + number)]
    ]
    connection.execute(sa.insert(port_addresses), rows)


@pytest.mark.parametrize("free", [{FIRST}, {257}, {258}, {1000}, {2046}, {300, 2000}, {4094}, set()])
def test_the_free_one_is_found(api: sa.Connection, free: set[int]) -> None:
    subnet = _subnet(api, "10.0.0.0/20")
    _give(api, subnet, range(FIRST, 4095), free)
    statements: list[str] = []

    def note(*given: Any) -> None:
        statements.append(given[2])

    sa.event.listen(api.engine, "before_cursor_execute", note)
    try:
        found = take_next(api, subnet, "port", 0)
    finally:
        sa.event.remove(api.engine, "before_cursor_execute", note)
    assert found == (ip_address("10.0.0.0") + min(free) if free else None)
    assert len(statements) < 20


def test_the_search_comes_round_to_an_address_that_was_given_back(api: sa.Connection) -> None:
    subnet = _subnet(api, "10.0.0.0/23")
    _give(api, subnet, range(FIRST, 510), set())
    assert str(take_next(api, subnet, "port", 0)) == "10.0.1.254"
    assert take_next(api, subnet, "port", 0) is None
    api.execute(sa.delete(port_addresses).where(port_addresses.c.ip_address == "10.0.1.7"))
    assert str(take_next(api, subnet, "port", 0)) == "10.0.1.7"


def test_a_large_subnet_of_ipv6_and_several_pools(api: sa.Connection) -> None:
    pools = (AllocationPool("2001:db8::2", "2001:db8::3"), AllocationPool("2001:db8::100", "2001:db8::ffff:ffff"))
    subnet = _subnet(api, "2001:db8::/64", allocation_pools=pools)
    given = [str(take_next(api, subnet, "port", 0)) for _ in range(4)]
    assert given == ["2001:db8::2", "2001:db8::3", "2001:db8::100", "2001:db8::101"]
    _give(api, subnet, range(0x102, 0x102 + 3000), {0x102 + 1500})
    assert str(take_next(api, subnet, "port", 0)) == f"2001:db8::{0x102 + 1500:x}"


@pytest.mark.parametrize("count", [1, 5, 300])
@pytest.mark.parametrize("free", [set(range(FIRST, 4095)), set(range(100, 900)), {FIRST, 257, 258, 1000, 4094}])
def test_several_are_those_that_would_be_given_one_by_one(api: sa.Connection, free: set[int], count: int) -> None:
    subnet = _subnet(api, "10.0.0.0/20")
    if left := [number for number in range(FIRST, 4095) if number not in free]:
        _give(api, subnet, range(left[0], left[-1] + 1), free)
    found = next_free(api, subnet, count)
    one_by_one = [take_next(api, subnet, "port", 0) for _ in range(count)]
    assert found in (None, one_by_one)
    assert found is not None or None in one_by_one or len(free) < 10, "what is not crowded is found at once"


def test_a_search_for_several_comes_round(api: sa.Connection) -> None:
    subnet = _subnet(api, "10.0.0.0/28")
    first = next_free(api, subnet, 10)
    assert first is not None
    take_many(api, [(subnet, address, "port", 0) for address in first])
    port_addresses_left = next_free(api, subnet, 3)
    assert port_addresses_left == [ip_address(f"10.0.0.{number}") for number in (12, 13, 14)]
    assert next_free(api, subnet, 4) is None
    give_back(api, ["port"])
    again = next_free(api, subnet, 5)
    assert again == [ip_address(f"10.0.0.{number}") for number in (12, 13, 14, 2, 3)]
