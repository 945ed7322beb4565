"""What guests read of their interfaces."""

from __future__ import annotations

import json

import msgspec
import pytest

from skep.domain.guest_documents.facts import GuestFacts
from skep.domain.guest_documents.networks import network_data, tagged_devices, tagged_disks
from skep.domain.guest_documents.paths import find, on_config_drive, split
from skep.domain.networking import HostRoute
from skep.domain.vifs import Vif, VifAddress, VifGroup, VifSubnet
from skep.domain.volumes import ServerVolume
from tests.unit.domain.test_guest_documents import BARE

V4 = VifSubnet(
    id="s4",
    cidr="10.0.0.0/24",
    version=4,
    gateway="10.0.0.1",
    dns=("192.0.2.53",),
    routes=(HostRoute("10.9.0.0/16", "10.0.0.9"),),
    dhcp=False,
    addresses=(VifAddress("10.0.0.5", ("203.0.113.9",)), VifAddress("10.0.0.6")),
)
V6 = VifSubnet(
    id="s6",
    cidr="2001:db8::/64",
    version=6,
    gateway="2001:db8::1",
    dns=("2001:db8::53",),
    dhcp=False,
    addresses=(VifAddress("2001:db8::5"),),
)
VIF = Vif(
    id="12345678-0000-4000-8000-000000000001",
    mac_address="fa:16:3e:00:00:01",
    network_id="n",
    network_name="mine",
    mtu=1450,
    tag="front",
    subnets=(V6, V4),
    groups=(VifGroup("g", "web"),),
)
LINK = "tap12345678-00"
FACTS = GuestFacts(server=msgspec.structs.replace(BARE, vifs=(VIF,)), seed=b"")


def test_all_that_a_guest_without_dhcp_needs() -> None:
    dns4, dns6 = {"type": "dns", "address": "192.0.2.53"}, {"type": "dns", "address": "2001:db8::53"}
    assert network_data((VIF,)) == {
        "links": [
            {"id": LINK, "vif_id": VIF.id, "type": "tap", "mtu": 1450, "ethernet_mac_address": "fa:16:3e:00:00:01"}
        ],
        "networks": [
            {
                "id": "network0",
                "type": "ipv4",
                "link": LINK,
                "network_id": "n",
                "ip_address": "10.0.0.5",
                "netmask": "255.255.255.0",
                "routes": [
                    {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"},
                    {"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.0.0.9"},
                ],
                "services": [dns4],
            },
            {
                "id": "network1",
                "type": "ipv6",
                "link": LINK,
                "network_id": "n",
                "ip_address": "2001:db8::5",
                "netmask": "ffff:ffff:ffff:ffff::",
                "routes": [{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}],
                "services": [dns6],
            },
        ],
        "services": [dns4, dns6],
    }


@pytest.mark.parametrize(
    ("subnet", "mode", "kind", "has_address"),
    [(V4, None, "ipv4_dhcp", False), (V6, None, "ipv6_dhcp", False), (V6, "slaac", "ipv6_slaac", True)],
)
def test_who_gives_the_address(subnet: VifSubnet, mode: str | None, kind: str, has_address: bool) -> None:
    by_dhcp = msgspec.structs.replace(subnet, dhcp=True, ipv6_address_mode=mode)
    told = network_data((msgspec.structs.replace(VIF, subnets=(by_dhcp,), type="new"),))
    [network], [link] = told["networks"], told["links"]
    assert (network["type"], "ip_address" in network) == (kind, has_address)
    assert (link["type"], link["mtu"]) == ("phy", None)


def test_one_subnet_of_each_version_is_told_of_each_interface() -> None:
    more = msgspec.structs.replace(V4, id="other", addresses=(VifAddress("10.0.0.9"),))
    two = msgspec.structs.replace(VIF, subnets=(V4, more))
    told = network_data((two, two))["networks"]
    assert [(one["id"], one["ip_address"]) for one in told] == [("network0", "10.0.0.5"), ("network1", "10.0.0.5")]
    assert network_data(()) == {}


def test_tags_name_devices() -> None:
    plain = msgspec.structs.replace(VIF, tag=None)
    device = {"type": "nic", "bus": "none", "address": "none", "mac": VIF.mac_address, "tags": ["front"]}
    assert tagged_devices((plain, VIF), "2016-06-30") == [device]
    assert tagged_devices((VIF,), "2018-08-27") == [{**device, "vf_trusted": False}]


def test_where_guests_read_it() -> None:
    drive = on_config_drive(FACTS)

    def both(path: str) -> bytes:
        found = find(FACTS, split(path))
        assert found == drive[path]
        return found

    assert json.loads(both("openstack/latest/network_data.json")) == network_data((VIF,))
    assert json.loads(both("openstack/latest/meta_data.json"))["devices"][0]["tags"] == ["front"]
    told = json.loads(drive["ec2/latest/meta-data.json"])
    assert (told["local-ipv4"], told["public-ipv4"], told["security-groups"]) == ("10.0.0.5", "203.0.113.9", ["web"])
    assert find(FACTS, split("latest/meta-data/local-ipv4")) == b"10.0.0.5"


def test_volumes_with_tags_are_told_by_name_and_serial() -> None:
    plain = ServerVolume(id="1", volume_id="first", attachment_id="a", device="/dev/vdb")
    tagged = ServerVolume(id="2", volume_id="second", attachment_id="a", device="/dev/vdc", tag="data")
    assert tagged_disks((plain, tagged)) == [
        {
            "type": "disk",
            "bus": "none",
            "address": "none",
            "serial": "second",
            "path": "/dev/vdc",
            "tags": ["data"],
        }
    ]
