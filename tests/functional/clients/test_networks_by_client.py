"""The network service by the real `openstack` client: the commands of docs/networks.md as written, and more."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skep.config.networks import NetworksSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet, refusal
from tests.support.written_commands import commands_of

PAGE = (Path(__file__).parents[3] / "docs" / "networks.md").read_text(encoding="utf-8")
COMMANDS = [command for command in commands_of(PAGE) if command.startswith("openstack ")]
FIRST = "auto_allocated_network"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    """A cloud with the network service."""
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as found:
        yield found


async def _run(yaml: Path, command: str) -> str:
    _, *words = shlex.split(command)
    user = "skep-demo"
    if words[0] == "--os-cloud":
        _, user, *words = words
    return await openstack_quiet(yaml, *words, cloud=user)


async def test_the_commands_of_the_page(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    for command in COMMANDS:
        await _run(yaml, command)
    two, three = [await openstack(yaml, "server", "show", name, cloud="skep-demo") for name in ("two", "three")]
    assert (two["status"], two["addresses"]) == ("ACTIVE", {"private": ["10.0.0.3", "10.0.0.5"]})
    assert (three["status"], three["addresses"]) == ("ACTIVE", {"private": ["10.0.0.2", "198.51.100.3"]})
    [port] = await openstack(yaml, "port", "list", "--server", "three", cloud="skep-demo")
    assert (port["Name"], [one["ip_address"] for one in port["Fixed IP Addresses"]]) == ("one", ["10.0.0.2"])
    shown = await openstack(yaml, "port", "show", "one", cloud="skep-demo")
    web = await openstack(yaml, "security", "group", "show", "web", cloud="skep-demo")
    assert shown["security_group_ids"] == [web["id"]]
    assert "443" in str(web["rules"])
    [floating] = await openstack(yaml, "floating", "ip", "list", cloud="skep-demo")
    assert (floating["Floating IP Address"], floating["Port"]) == ("198.51.100.3", shown["id"])
    edge = await openstack(yaml, "router", "show", "edge", cloud="skep-demo")
    assert [one["ip_address"] for one in edge["interfaces_info"]] == ["10.0.0.1"]
    assert edge["external_gateway_info"]["external_fixed_ips"][0]["ip_address"] == "198.51.100.2"


async def test_what_is_used_stays(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    for command in COMMANDS:
        await _run(yaml, command)
    assert "still in use" in await refusal(yaml, "network", "delete", "private", cloud="skep-demo")
    assert "still has ports" in await refusal(yaml, "router", "delete", "edge", cloud="skep-demo")
    assert "in use" in await refusal(yaml, "security", "group", "delete", "web", cloud="skep-demo")
    assert "floating" in await refusal(yaml, "router", "remove", "subnet", "edge", "private-v4", cloud="skep-demo")
    [floating] = await openstack(yaml, "floating", "ip", "list", cloud="skep-demo")
    for words in (
        ("server", "delete", "--wait", "two", "three"),
        ("floating", "ip", "delete", floating["ID"]),
        ("router", "remove", "subnet", "edge", "private-v4"),
        ("router", "unset", "--external-gateway", "edge"),
        ("router", "delete", "edge"),
        ("port", "delete", "one", "another"),
        ("network", "delete", "private"),
        ("security", "group", "delete", "web"),
    ):
        await openstack_quiet(yaml, *words, cloud="skep-demo")
    assert await openstack(yaml, "port", "list", "--network", "outside", cloud="skep") == []
    left = [one["Name"] for one in await openstack(yaml, "subnet", "list", cloud="skep")]
    assert sorted(set(left)) == ["auto_allocated_subnet_v4", "outside-v4", "public-subnet"]


async def test_tags_quotas_extensions_and_the_topology(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    await openstack_quiet(yaml, "network", "create", "--tag", "red", "tagged", cloud="skep-demo")
    assert [one["Name"] for one in await openstack(yaml, "network", "list", "--tags", "red")] == ["tagged"]
    others = {one["Name"] for one in await openstack(yaml, "network", "list", "--not-tags", "red")}
    assert others == {FIRST, "public"}
    await openstack_quiet(yaml, "quota", "set", "--networks", "2", "demo")
    limits = await openstack(yaml, "quota", "show", cloud="skep-demo")
    assert [one["Limit"] for one in limits if one["Resource"] == "networks"] == [2]
    assert "Quota exceeded" in await refusal(yaml, "network", "create", "more", cloud="skep-demo")
    aliases = {one["Alias"] for one in await openstack(yaml, "extension", "list", "--network", cloud="skep-demo")}
    assert {"router", "security-group", "quotas"} <= aliases
    words = ("network", "auto", "allocated", "topology")
    made = await openstack(yaml, *words, "create", cloud="skep-demo")
    found = await openstack(yaml, "network", "show", made["id"], cloud="skep-demo")
    assert found["name"] == FIRST
    await openstack_quiet(yaml, *words, "delete", cloud="skep-demo")
    left = {one["Name"] for one in await openstack(yaml, "network", "list", cloud="skep-demo")}
    assert left == {"tagged", "public"}


async def test_floating_addresses_and_groups_of_a_server(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml

    async def shown() -> tuple[list[str], set[str]]:
        server = await openstack(yaml, "server", "show", "one", cloud="skep-demo")
        return server["addresses"][FIRST], {one["name"] for one in server.get("security_groups", ())}

    create = "server create --image tiny --flavor m1.tiny --wait one"
    await openstack_quiet(yaml, *create.split(), cloud="skep-demo")
    [fixed], _ = await shown()
    floating = await openstack(yaml, "floating", "ip", "create", "public", cloud="skep-demo")
    address = floating["floating_ip_address"]
    await openstack_quiet(yaml, "security", "group", "create", "web", cloud="skep-demo")
    await openstack_quiet(yaml, "server", "add", "floating", "ip", "one", address, cloud="skep-demo")
    await openstack_quiet(yaml, "server", "add", "security", "group", "one", "web", cloud="skep-demo")

    async def has_both() -> bool:
        return await shown() == ([fixed, address], {"default", "web"})

    await eventually(has_both, "the server has the address and the group")
    await openstack_quiet(yaml, "server", "remove", "floating", "ip", "one", address, cloud="skep-demo")
    await openstack_quiet(yaml, "server", "remove", "security", "group", "one", "web", cloud="skep-demo")

    async def has_none() -> bool:
        return await shown() == ([fixed], {"default"})

    await eventually(has_none, "the server has neither any more")


async def test_interfaces_of_a_server_that_is_there(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml

    async def run(command: str) -> None:
        await openstack_quiet(yaml, *command.split(), cloud="skep-demo")

    async def addresses() -> list[str]:
        server = await openstack(yaml, "server", "show", "one", cloud="skep-demo")
        return list((server["addresses"] or {}).get("mine", []))

    await run("network create mine")
    await run("subnet create --network mine --subnet-range 10.7.0.0/24 mine-v4")
    await run("port create --network mine --fixed-ip ip-address=10.7.0.7 brought")
    await run("server create --image tiny --flavor m1.tiny --nic none --wait one")
    await run("server add port one brought")
    await run("server add fixed ip --fixed-ip-address 10.7.0.9 one mine")
    await run("server add network one mine")
    assert (await addresses())[:2] == ["10.7.0.7", "10.7.0.9"]
    assert len(await addresses()) == 3
    await run("server remove fixed ip --os-compute-api-version 2.43 one 10.7.0.9")
    assert "10.7.0.9" not in await addresses()
    await run("server remove port one brought")
    assert "10.7.0.7" not in await addresses()
    await run("server remove network one mine")
    assert await addresses() == []
    left = await openstack(yaml, "port", "list", "--network", "mine", cloud="skep-demo")
    assert [one["Name"] for one in left] == ["brought"]


async def test_a_cloud_can_do_without(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        types = {one["Type"] for one in await openstack(cloud.clouds_yaml, "catalog", "list")}
        assert types == {"compute", "identity", "image"}
        assert cloud.networks_url == ""
