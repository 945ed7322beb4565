"""The network service by the real `openstack` client: the commands of docs/networks.md as written, and more."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.networks import NetworksSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from tests.support.openstack import openstack, openstack_quiet, refusal
from tests.support.written_commands import commands_of

PAGE = (Path(__file__).parents[3] / "docs" / "networks.md").read_text(encoding="utf-8")
CLIENTS = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
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


async def test_a_project_is_cleaned_up(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    [cleanup] = [one for one in commands_of(CLIENTS) if one.startswith("openstack project cleanup ")]
    for command in COMMANDS:
        await _run(yaml, command)
    await _run(yaml, "openstack security group create unused")
    shared = {"public", "outside"}
    kinds = ("network", "subnet", "port", "router", "floating ip", "security group", "server")

    async def left() -> dict[str, set[str]]:
        listed = {kind: await openstack(yaml, *kind.split(), "list", cloud="skep-demo") for kind in kinds}
        return {kind: {one.get("Name", one["ID"]) for one in found} for kind, found in listed.items()}

    before = await left()
    assert all(before.values()), before
    await _run(yaml, cleanup)
    await _run(yaml, cleanup)

    async def is_clean() -> bool:
        found = await left()
        return found.pop("network") <= shared and found.pop("security group") == {"default"} and not any(found.values())

    await eventually(is_clean, "nothing of the project is left")


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


NICS = {
    "--network mine": ["mine"],
    "--network mine --network other": ["mine", "other"],
    "--port brought": ["10.7.0.7"],
    "--port also --network other": ["10.7.0.8", "other"],
    "--nic net-id=other": ["other"],
    "--nic net-id=mine,v4-fixed-ip=10.7.0.9": ["10.7.0.9"],
    "--nic net-id=six,v6-fixed-ip=fd07::9": ["fd07::9"],
    "--nic port-id=third --nic net-id=mine": ["10.7.0.10", "mine"],
    "--nic net-id=mine,tag=red --os-compute-api-version 2.43": ["mine"],
    "--nic none": [],
    "--no-network": [],
}
"""What a create says -> an address, or the network of an address, for each interface."""
ON_THE_ONLY_NETWORK = {"--nic auto": [FIRST], "--auto-network": [FIRST], "": [FIRST]}
AMBIGUOUS = "More than one possible network found"
REFUSED_NICS = {
    "--nic none --network mine": "cannot be used with any other",
    "--nic net-id=mine,v4-fixed-ip=10.8.0.9": "an address of a subnet of network",
    "--nic net-id=mine,v4-fixed-ip=10.7.0.7": "10.7.0.7",
    "--nic port-id=also,v4-fixed-ip=10.7.0.20": "networks[0].fixed_ip",
    "--nic net-id=absent": "No Network found for absent",
    "--port absent": "No Port found for absent",
    "--port brought": "in use",
    **dict.fromkeys(ON_THE_ONLY_NETWORK, AMBIGUOUS),
}


async def test_each_form_of_interfaces(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    create = "server create --image tiny --flavor m1.tiny"

    async def listed() -> dict[str, Any]:
        return {one["Name"]: one for one in await openstack(yaml, "server", "list", cloud="skep-demo")}

    async def are_given(forms: dict[str, list[str]]) -> None:
        names = {nics: f"of-{number}" for number, nics in enumerate(forms)}
        for nics, name in names.items():
            await _run(yaml, f"openstack {create} {nics} {name}")

        async def all_active() -> bool:
            return {one["Status"] for one in (await listed()).values()} == {"ACTIVE"}

        await eventually(all_active, "all servers are ACTIVE")
        servers = await listed()
        for nics, wanted in forms.items():
            addresses = servers[names[nics]]["Networks"]
            networks = {address: network for network, of_it in addresses.items() for address in of_it}
            given = [address if address in wanted else networks[address] for address in networks]
            assert sorted(given) == sorted(wanted), nics
        await _run(yaml, f"openstack server delete --wait {' '.join(names.values())}")

    await _run(yaml, "openstack --os-cloud skep quota set --instances 20 --cores 20 demo")
    await are_given(ON_THE_ONLY_NETWORK)
    for network, subnet in (
        ("mine", "--subnet-range 10.7.0.0/24"),
        ("other", "--subnet-range 10.8.0.0/24"),
        ("six", "--ip-version 6 --subnet-range fd07::/64"),
    ):
        await _run(yaml, f"openstack network create {network}")
        await _run(yaml, f"openstack subnet create --network {network} {subnet} {network}-subnet")
    for port, last in (("brought", 7), ("also", 8), ("third", 10)):
        await _run(yaml, f"openstack port create --network mine --fixed-ip ip-address=10.7.0.{last} {port}")
    await are_given(NICS)
    await _run(yaml, f"openstack {create} --wait --port brought has")
    for nics, words in REFUSED_NICS.items():
        assert words in await refusal(yaml, *f"{create} {nics} refused".split(), cloud="skep-demo"), nics
    assert set(await listed()) == {"has"}


async def test_groups_and_tags_of_interfaces(cloud: AllInOneCloud) -> None:
    yaml = cloud.clouds_yaml
    newest = "--os-compute-api-version 2.100"
    await _run(yaml, "openstack security group create web")
    await _run(yaml, "openstack network create mine")
    await _run(yaml, "openstack subnet create --network mine --subnet-range 10.7.0.0/24 mine-v4")
    await _run(yaml, "openstack port create --network mine brought")
    create = "openstack server create --image tiny --flavor m1.tiny --wait"
    await _run(yaml, f"{create} --network mine --security-group web --security-group default one")
    shown = await openstack(yaml, "server", "show", "one", cloud="skep-demo")
    assert {one["name"] for one in shown["security_groups"]} == {"web", "default"}
    # The client asks for an empty list, and that is as good as nothing: the port has the default group, as with Nova.
    await _run(yaml, f"{create} --network mine --no-security-group none")
    none = await openstack(yaml, "server", "show", "none", cloud="skep-demo")
    assert [one["name"] for one in none["security_groups"]] == ["default"]
    await _run(yaml, f"openstack server add port {newest} --tag blue one brought")
    await _run(yaml, f"openstack server add network {newest} --tag green one mine")
    await _run(yaml, f"openstack server add fixed ip {newest} --tag red --fixed-ip-address 10.7.0.99 one mine")
    async with signed_in(cloud, "demo", "demo") as session:
        answer = await session.ask("GET", f"/servers/{shown['id']}/os-interface", version="2.70")
        tags = {one["tag"] for one in answer.json()["interfaceAttachments"]}
    assert tags == {None, "blue", "green", "red"}


async def test_a_cloud_can_do_without(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        types = {one["Type"] for one in await openstack(cloud.clouds_yaml, "catalog", "list")}
        assert types == {"compute", "identity", "image"}
        assert cloud.networks_url == ""
