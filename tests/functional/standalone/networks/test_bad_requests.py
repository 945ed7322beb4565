"""Whatever a client sends to the network service is answered by a fault in Neutron's form, never by a 5xx."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.database.compiled import STATEMENTS
from skep.standalone.networks.app import RESOURCES
from tests.support.embedded_networks import AskedNetworks

EVERY: tuple[Any, ...] = RESOURCES
POOLS = range(2, 53)
ID = "00000000-0000-4000-8000-000000000000"
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=12)
    | st.sampled_from([ID, "10.0.0.0/24", "10.0.0.1", "fe80::%a/64", "2001:db8::/64", "tcp", "ingress", "\x00"])
)
NESTED = VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(st.text(max_size=5), VALUES, max_size=2)
quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(data=st.data())
async def test_fields_of_any_value(net: AskedNetworks, data: st.DataObject) -> None:
    resource = data.draw(st.sampled_from(EVERY))
    names = list(resource.new.__struct_encode_fields__)
    fields = data.draw(st.dictionaries(st.sampled_from(names), NESTED, max_size=4))
    body = {resource.member: fields}
    assert (await net.answer("POST", resource.path, body, by="admin")).status_code in (201, 400, 403, 404, 409)
    assert (await net.answer("PUT", f"{resource.path}/{ID}", body, by="admin")).status_code in (400, 404)


@quick
@given(data=st.data())
async def test_parameters_of_any_value(net: AskedNetworks, data: st.DataObject) -> None:
    resource = data.draw(st.sampled_from(EVERY))
    names = [
        *resource.filters,
        "limit",
        "marker",
        "page_reverse",
        "sort_key",
        "sort_dir",
        "fields",
        "tags",
        "fixed_ips",
    ]
    params = data.draw(st.dictionaries(st.sampled_from(names), st.text(max_size=8), max_size=3))
    assert (await net.answer("GET", resource.path, params=params)).status_code in (200, 400, 404)


@pytest.mark.parametrize("name", ["tags", "tags-any", "not-tags", "not-tags-any"])
async def test_tags_that_no_resource_has_together(net: AskedNetworks, name: str) -> None:
    """Neither many of them nor their number makes a statement larger."""
    for resource in EVERY:
        many = ",".join(f"tag{number}" for number in range(51))
        _, message = await net.refused(400, "GET", f"{resource.path}?{name}={many}")
        assert name in message
    doubled = await net.answer("GET", f"networks?{name}={',a' * 5000}")
    assert doubled.status_code == 200, doubled.text


async def test_lists_of_any_shape_leave_nothing(net: AskedNetworks) -> None:
    """No statement is kept for a shape that one client makes."""
    await net.answer("GET", "networks")
    kept = len(STATEMENTS)
    for number in range(1, 50):
        tags = ",".join(f"tag{each}" for each in range(number))
        assert (await net.answer("GET", f"networks?tags={tags}&not-tags={tags}")).status_code == 200
    orders = itertools.permutations(("id", "name", "description", "project_id"))
    for order in orders:
        keys = "&".join(f"sort_key={key}" for key in order)
        assert (await net.answer("GET", f"networks?{keys}")).status_code == 200
    assert len(STATEMENTS) <= kept + 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"network": 1}', b'{"network": {}, "x": 1}'])
async def test_no_json_of_a_network(net: AskedNetworks, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    await net.refused(400, "POST", "networks", content=content, headers=headers)


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        ("network", {"mtu": 10**30}, "mtu"),
        ("network", {"mtu": 67}, "mtu"),
        ("network", {"admin_state_up": "perhaps"}, "admin_state_up"),
        ("network", {"colour": "red"}, "colour"),
        ("network", {"name": "a\x00b"}, "name"),
        ("network", {"name": "x" * 256}, "name"),
        ("subnet", {"cidr": "10.0.0.0/33"}, "10.0.0.0/33"),
        ("subnet", {"cidr": "2001:db8::/64"}, "ip_version"),
        ("subnet", {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.1.1"}, "10.0.1.1"),
        ("subnet", {"cidr": "10.0.0.0/24", "ipv6_ra_mode": "slaac"}, "ipv6_ra_mode"),
        ("subnet", {"cidr": "10.0.0.0/24", "ip_version": 5}, "ip_version"),
        ("subnet", {"cidr": "10.0.0.0/0.0.0.255"}, "10.0.0.0/0.0.0.255"),
        ("subnet", {"cidr": "10.0.0.0/24", "host_routes": [{"destination": "x", "nexthop": "y"}]}, "'x'"),
        ("subnet", {"cidr": "2001:db8::/65", "ip_version": 6, "ipv6_address_mode": "slaac"}, "64 bits"),
        ("subnet", {"cidr": "fe80::%a/64", "ip_version": 6}, "fe80::%a/64"),
        ("subnet", {"cidr": "10.0.0.0/24", "allocation_pools": [{"start": "10.0.0.9", "end": "10.0.0.2"}]}, "pool"),
        ("subnet", {"cidr": "10.0.0.0/24", "dns_nameservers": ["192.0.2.1", "192.0.2.1"]}, "twice"),
        (
            "subnet",
            {
                "cidr": "10.0.0.0/24",
                "allocation_pools": [{"start": f"10.0.0.{n}", "end": f"10.0.0.{n}"} for n in POOLS],
            },
            "allocation_pools: expected at most 50",
        ),
        ("port", {"mac_address": "01:00:00:00:00:01"}, "01:00:00:00:00:01"),
        ("port", {"fixed_ips": [{}]}, "fixed_ips"),
        ("port", {"fixed_ips": [{"ip_address": "192.0.2.1"}]}, "192.0.2.1"),
        ("port", {"binding:vnic_type": "nothing"}, "binding:vnic_type"),
    ],
)
async def test_a_fault_names_what_is_wrong(net: AskedNetworks, kind: str, fields: dict[str, Any], named: str) -> None:
    network = await net.make("network")
    usual = {
        "network": {},
        "subnet": {"network_id": network["id"], "ip_version": 4},
        "port": {"network_id": network["id"]},
    }
    _, message = await net.refused(400, "POST", f"{kind}s", {kind: {**usual[kind], **fields}})
    assert named in message


@pytest.mark.parametrize("one", ["x", "%00", ID, ID.upper(), "0" * 300, "..%2f"])
async def test_ids_that_are_none(net: AskedNetworks, one: str) -> None:
    for resource in EVERY:
        await net.refused(404, "GET", f"{resource.path}/{one}")
        await net.refused(404, "DELETE", f"{resource.path}/{one}")


async def test_a_limit_of_nothing_is_none(net: AskedNetworks) -> None:
    for _ in range(3):
        await net.make("network")
    assert len(await net.listed("networks?limit=0")) == 3
    assert len(await net.listed(f"networks?limit={10**17}")) == 3
    assert (await net.refused(400, "GET", "networks?limit=-1"))[1].startswith("limit")
    assert "marker" in (await net.refused(400, "GET", f"networks?marker={ID}"))[1]
