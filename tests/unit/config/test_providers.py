"""Nested providers that an operator gives to hosts, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.compute.drivers.fake_topology import FakeDevices, FakeTopology, inventory, topology
from skep.compute.inventory import idle_usage
from skep.config import load
from skep.domain.errors import Misconfigured
from skep.domain.hosts import HostFacts
from skep.domain.nested.layout import layout_of
from skep.domain.resources import Inventory
from skep.processes.hosts import compute_settings
from tests.unit.config.test_loading import refused, written

UUID = "41b2fa90-c3ba-5d27-b5d9-c5d2bb3e7a9a"
BRIDGE = f"""
[[compute.providers]]
name = "agent"
inventories = [{{ resource_class = "NET_PACKET_RATE_KILOPACKET_PER_SEC", total = 100 }}]

[[compute.providers]]
name = "bridge"
uuid = "{UUID.upper()}"
parent = "agent"
traits = ["CUSTOM_PHYSNET_PUBLIC"]
hosts = "*"
[[compute.providers.inventories]]
resource_class = "VGPU"
total = 100
reserved = 20
allocation_ratio = 2.0
"""


def facts(devices: int = 0) -> HostFacts:
    inside = FakeTopology(devices=(FakeDevices(count=devices, resource_class="VGPU"),)) if devices else None
    found = HostFacts(inventory={}, hypervisor_type="", hypervisor_version=1, hypervisor_hostname="h")
    if inside is None:
        return found
    told = inventory(inside, 4), topology(inside, 4, 1024)
    return HostFacts(
        inventory=told[0], topology=told[1], hypervisor_type="", hypervisor_version=1, hypervisor_hostname="h"
    )


@pytest.mark.parametrize("devices", [0, 3])
def test_a_host_reports_them_besides_those_of_its_driver(tmp_path: Path, devices: int) -> None:
    """The flat amounts count both, and no more of a class than its providers may give."""
    settings = compute_settings(load(written(tmp_path, BRIDGE), {}).config, "h1")
    usage = idle_usage("h1", facts(devices), settings, 0)
    layout = layout_of(usage)
    of_class = [one.capacity["VGPU"] for one in layout.providers if "VGPU" in one.capacity]
    assert usage.inventory["VGPU"].capacity == sum(of_class) == 160 + devices
    assert usage.inventory["NET_PACKET_RATE_KILOPACKET_PER_SEC"] == Inventory(total=100)
    bridge = layout.providers[-1].provider
    assert (bridge.name, bridge.uuid, bridge.parent) == ("bridge", UUID, "agent")
    assert bridge.traits == ("CUSTOM_PHYSNET_PUBLIC",)


def test_the_documented_ones_are_taken(tmp_path: Path) -> None:
    """Those of the page on networks."""
    page = (Path(__file__).parents[3] / "docs/networks.md").read_text()
    _, said = page.split("```toml\n[[compute.providers]]\n")
    text = "[[compute.providers]]\n" + said.split("```")[0]
    agent, bridge = compute_settings(load(written(tmp_path, text), {}).config, "h1").providers
    assert bridge.parent == agent.name
    assert bridge.inventory["NET_BW_EGR_KILOBIT_PER_SEC"] == Inventory(total=10000000, reserved=1000000)


def test_an_environment_gives_them_as_json(tmp_path: Path) -> None:
    text = '[{"name": "a", "inventories": [{"resource_class": "VGPU", "total": 3}]}]'
    [found] = load(written(tmp_path, ""), {"SKEP_COMPUTE__PROVIDERS": text}).config.compute.providers
    assert (found.name, found.inventories[0].total) == ("a", 3)


def test_a_pattern_names_the_hosts_that_have_one(tmp_path: Path) -> None:
    config = load(written(tmp_path, BRIDGE.replace('hosts = "*"', 'hosts = "h1"').replace('parent = "agent"', "")), {})
    assert [one.name for one in compute_settings(config.config, "h1").providers] == ["agent", "bridge"]
    assert [one.name for one in compute_settings(config.config, "h2").providers] == ["agent"]


def test_a_name_that_the_driver_has_is_refused(tmp_path: Path) -> None:
    named = BRIDGE.replace('"agent"', '"devices0-cell0"')
    settings = compute_settings(load(written(tmp_path, named), {}).config, "h1")
    with pytest.raises(Misconfigured, match=r"compute\.providers: name: .*devices0-cell0"):
        idle_usage("h1", facts(3), settings, 0)


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        (f'uuid = "{UUID.upper()}"', 'uuid = "none"', "uuid: `none` is no UUID"),
        ('name = "bridge"', 'name = ""', "name"),
        ('name = "bridge"', 'name = "agent"', "providers: name: there are two of `agent`"),
        ('name = "agent"', f'name = "agent"\nuuid = "{UUID}"', "providers: uuid: there are two"),
        ('parent = "agent"', 'parent = "other"', "providers: parent: `bridge` names `other`"),
        ('parent = "agent"', 'parent = "bridge"', "providers: parent: `bridge` is held by itself"),
        ('"VGPU"', '"lower"', "inventories[0].resource_class"),
        ('"VGPU"', '"VCPU"', "inventories: VCPU is of the host itself"),
        (
            '[{ resource_class = "NET_PACKET_RATE_KILOPACKET_PER_SEC", total = 100 }]',
            "[]",
            "inventories: a provider has",
        ),
        ("total = 100\n", "", "inventories[0].total: is missing"),
        ("total = 100\n", "total = 0\n", "inventories[0].total"),
        (
            "2.0\n",
            '2.0\n[[compute.providers.inventories]]\nresource_class = "VGPU"\ntotal = 1\n',
            "VGPU stands there twice",
        ),
        ("reserved = 20", "reserved = 101", "reserved: 101 is more than total, 100"),
        ("allocation_ratio = 2.0", "allocation_ratio = 0", "allocation_ratio"),
        ("CUSTOM_PHYSNET_PUBLIC", "public", "traits"),
        ('hosts = "*"', 'hosts = ""', "hosts"),
        ('hosts = "*"', 'colour = "red"', "colour"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, was: str, becomes: str, said: str) -> None:
    assert was in BRIDGE
    [problem] = refused(written(tmp_path, BRIDGE.replace(was, becomes)), {})
    assert said in problem
    assert "compute" in problem
