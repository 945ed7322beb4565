"""Networks and addresses of servers that old clients ask the compute API for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.networks import NetworksSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.ids import new_uuid
from tests.functional.networks.asking import Ask, asker
from tests.functional.networks.test_servers_with_addresses import Tenant, addresses, tenant

FLOATING, POOLS = "/os-floating-ips", "/os-floating-ip-pools"
LAST = "2.43"
"""Microversion until which there are the actions."""


async def test_floating_addresses_are_taken_and_given_back(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        assert await ask("GET", POOLS) == [{"name": "public"}]
        assert await ask("GET", FLOATING) == []
        for body in ({}, {"pool": None}, {"pool": "public"}):
            made = await ask("POST", FLOATING, body)
            assert made["ip"].startswith("203.0.113.")
            assert {**made, "id": "", "ip": ""} == {
                "id": "",
                "ip": "",
                "pool": "public",
                "fixed_ip": None,
                "instance_id": None,
            }
            assert await ask("GET", FLOATING) == [made]
            assert await ask("GET", f"{FLOATING}/{made['id']}") == made
            await ask("DELETE", f"{FLOATING}/{made['id']}", status=202)
            for method in ("GET", "DELETE"):
                await ask(method, f"{FLOATING}/{made['id']}", status=404)
        await ask("POST", FLOATING, {"pool": "inside"}, status=404)
        wrong: tuple[Any, ...] = ({"pool": 7}, {"pool": "x" * 256}, {"pool": {}}, {"more": "public"}, [], None)
        for bad in wrong:
            await ask("POST", FLOATING, bad, status=400)
        for method, path in (("GET", FLOATING), ("GET", POOLS), ("POST", FLOATING)):
            await ask(method, path, {} if method == "POST" else None, version="2.35")
            await ask(method, path, {} if method == "POST" else None, version="2.36", status=404)


async def test_floating_addresses_of_others_and_quotas(tmp_path: Path) -> None:
    async with (
        serving_cloud(http_config(tmp_path)) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        signed_in(cloud, "admin", "admin") as admin,
    ):
        ask = asker(demo)
        theirs = await asker(admin)("POST", FLOATING, {})
        assert await ask("GET", FLOATING) == []
        for method in ("GET", "DELETE"):
            await ask(method, f"{FLOATING}/{theirs['id']}", status=404)
        project = (await ask("POST", "/os-security-groups", {"security_group": {"name": "a", "description": ""}}))[
            "tenant_id"
        ]
        url = f"{cloud.networks_url}/v2.0/quotas/{project}"
        answer = await admin.client.put(url, json={"quota": {"floatingip": 0}}, headers={"X-Auth-Token": admin.token})
        assert answer.status_code == 200, answer.text
        await ask("POST", FLOATING, {}, status=403)


async def test_networks_by_their_names(tmp_path: Path) -> None:
    async with (
        serving_cloud(http_config(tmp_path)) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        signed_in(cloud, "admin", "admin") as admin,
    ):
        ask, ask_admin = asker(demo), asker(admin)
        url = f"{cloud.networks_url}/v2.0/networks"
        body = {"network": {"name": "theirs"}}
        hidden = (await admin.client.post(url, json=body, headers={"X-Auth-Token": admin.token})).json()["network"]
        for path, keys, of_admins in (("/os-networks", 11, 32), ("/os-tenant-networks", 3, 3)):
            found = {one["label"]: one for one in await ask("GET", path)}
            assert "theirs" not in found
            assert "public" in found
            assert len(found["public"]) == keys
            assert found["public"]["cidr"] == (None if keys > 3 else "None")
            assert await ask("GET", f"{path}/{found['public']['id']}") == found["public"]
            for one in (hidden["id"], new_uuid(), "public"):
                await ask("GET", f"{path}/{one}", status=404)
            shown = await ask_admin("GET", f"{path}/{hidden['id']}")
            assert (shown["label"], len(shown)) == ("theirs", of_admins)
            assert "theirs" in [one["label"] for one in await ask_admin("GET", path)]
            await ask("GET", path, version="2.35")
            await ask("GET", path, version="2.36", status=404)
            for version in ("2.1", "2.36"):
                await ask("POST", path, {"network": {"label": "new"}}, status=410, version=version)
                await ask("DELETE", f"{path}/{hidden['id']}", status=410, version=version)
        await ask("POST", "/os-networks/add", {"id": None}, status=410)


async def test_a_floating_address_of_a_server(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        ask = asker(demo.compute)
        network = await _routed(demo)
        server, other = [(await demo.built([{"uuid": network}]))["id"] for _ in range(2)]
        [fixed] = addresses(await demo.server(server))["mine"]
        floating, second = [await ask("POST", FLOATING, {}) for _ in range(2)]

        async def shows(*wanted: str) -> bool:
            return addresses(await demo.server(server))["mine"] == [fixed, *wanted]

        await _act(ask, server, "addFloatingIp", {"address": floating["ip"]})
        shown = await ask("GET", f"{FLOATING}/{floating['id']}")
        assert (shown["fixed_ip"], shown["instance_id"]) == (fixed, server)
        await eventually(lambda: shows(floating["ip"]), "the server shows its floating address")
        for said in ({"address": second["ip"]}, {"address": second["ip"], "fixed_address": fixed}):
            await _act(ask, server, "addFloatingIp", said, status=400)
        await _act(ask, server, "addFloatingIp", {"address": second["ip"], "fixed_address": "10.1.0.250"}, status=400)
        await _act(ask, server, "addFloatingIp", {"address": "203.0.113.250"}, status=404)
        await _act(ask, server, "removeFloatingIp", {"address": "203.0.113.250"}, status=404)
        await _act(ask, other, "removeFloatingIp", {"address": floating["ip"]}, status=409)
        await _act(ask, server, "removeFloatingIp", {"address": second["ip"]}, status=409)
        await _act(ask, server, "removeFloatingIp", {"address": floating["ip"]})
        await eventually(shows, "the server shows no floating address")
        await _act(ask, server, "removeFloatingIp", {"address": floating["ip"]}, status=409)
        await _act(ask, server, "addFloatingIp", {"address": floating["ip"], "fixed_address": fixed})
        await ask("DELETE", f"{FLOATING}/{floating['id']}", status=202)
        await eventually(shows, "the server shows no floating address that was given back")
        bare = (await demo.built("none"))["id"]
        await _act(ask, bare, "addFloatingIp", {"address": second["ip"]}, status=400)
        for key in ("addFloatingIp", "removeFloatingIp"):
            await _act(ask, server, key, {"address": second["ip"]}, status=404, version="2.44")
        async with signed_in(demo.cloud, "admin", "admin") as admin:
            theirs = await asker(admin)("POST", FLOATING, {})
        for key in ("addFloatingIp", "removeFloatingIp"):
            await _act(ask, server, key, {"address": theirs["ip"]}, status=404)


async def test_one_more_fixed_address_of_a_server(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        ask = asker(demo.compute)
        network = (await demo.network("10.1.0.0/24"))["id"]
        elsewhere = (await demo.network("10.2.0.0/24", "elsewhere"))["id"]
        server = (await demo.built([{"uuid": network}]))["id"]
        [first] = addresses(await demo.server(server))["mine"]

        async def shown(count: int) -> list[str]:
            found = addresses(await demo.server(server))["mine"]
            return found if len(found) == count else []

        await _act(ask, server, "addFixedIp", {"networkId": network})
        both = await eventually(lambda: shown(2), "the server shows its new address")
        assert both[0] == first
        assert {one["ip_address"] for port in await demo.ports(server) for one in port["fixed_ips"]} == set(both)
        for one in (elsewhere, new_uuid()):
            await _act(ask, server, "addFixedIp", {"networkId": one}, status=404)
        await _act(ask, server, "removeFixedIp", {"address": "10.1.0.250"}, status=400)
        await _act(ask, server, "removeFixedIp", {"address": first})
        assert await eventually(lambda: shown(1), "the server shows one address less") == both[1:]
        await _act(ask, server, "removeFixedIp", {"address": first}, status=400)
        for key, said in (("addFixedIp", {"networkId": network}), ("removeFixedIp", {"address": both[1]})):
            await _act(ask, server, key, said, status=404, version="2.44")
            await _act(ask, new_uuid(), key, said, status=404)
        await ask("POST", f"/servers/{server}/action", {"lock": None}, status=202)
        await _act(ask, server, "addFixedIp", {"networkId": network}, status=409)
        await _act(ask, server, "removeFixedIp", {"address": both[1]}, status=409)


@pytest.mark.parametrize("version", ["2.1", "2.35"])
async def test_a_cloud_without_networks_names_what_it_has_not(tmp_path: Path, version: str) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config) as cloud, signed_in(cloud, "demo", "demo") as compute:
        demo = Tenant(cloud, compute)
        ask = asker(compute)
        requests: tuple[tuple[str, str, Any], ...] = (
            ("GET", POOLS, None),
            ("GET", FLOATING, None),
            ("POST", FLOATING, {}),
            ("GET", f"{FLOATING}/{new_uuid()}", None),
            ("DELETE", f"{FLOATING}/{new_uuid()}", None),
            *(("GET", path, None) for path in ("/os-networks", "/os-tenant-networks", f"/os-networks/{new_uuid()}")),
        )
        for method, path, body in requests:
            said = str(await ask(method, path, body, status=404, version=version))
            assert "are not part of this release" in said
        server = (await demo.built("none"))["id"]
        for key, asked in (
            ("addFloatingIp", {"address": "203.0.113.9"}),
            ("removeFloatingIp", {"address": "203.0.113.9"}),
            ("addFixedIp", {"networkId": new_uuid()}),
            ("removeFixedIp", {"address": "10.0.0.9"}),
        ):
            await _act(ask, server, key, asked, status=404, version=version)


async def _act(ask: Ask, server: str, key: str, said: Any, *, status: int = 202, version: str = LAST) -> None:
    await ask("POST", f"/servers/{server}/action", {key: said}, status=status, version=version)


async def _routed(demo: Tenant) -> str:
    """Make a network behind a router to the outside; return its id."""
    network = (await demo.network("10.1.0.0/24"))["id"]
    [subnet] = await demo.networks("GET", f"subnets?network_id={network}")
    [outside] = await demo.networks("GET", "networks?router:external=true")
    wanted = {"router": {"external_gateway_info": {"network_id": outside["id"]}}}
    router = (await demo.networks("POST", "routers", wanted))["id"]
    await demo.networks("PUT", f"routers/{router}/add_router_interface", {"subnet_id": subnet["id"]})
    return str(network)
