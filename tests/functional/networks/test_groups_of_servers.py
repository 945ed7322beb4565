"""Security groups that a server gets and loses."""

from __future__ import annotations

from pathlib import Path

from tests.functional.networks.test_servers_with_addresses import NEWEST, tenant


async def test_a_server_gets_a_group_and_loses_it(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24", "mine")
        group = await demo.networks("POST", "security-groups", {"security_group": {"name": "web"}})
        server = await demo.built([{"uuid": network["id"]}, {"uuid": network["id"]}])
        path = f"/servers/{server['id']}"

        async def act(key: str, name: str) -> int:
            answer = await demo.compute.ask("POST", f"{path}/action", {key: {"name": name}}, version=NEWEST)
            assert answer.status_code != 202 or not answer.content
            return int(answer.status_code)

        async def shows(*wanted: str) -> bool:
            return {one["name"] for one in (await demo.server(server["id"]))["security_groups"]} == set(wanted)

        assert await act("removeSecurityGroup", "web") == 404
        assert await act("addSecurityGroup", "nowhere") == 404
        assert await act("addSecurityGroup", "") == 400
        assert await act("addSecurityGroup", "web") == 202
        assert all(group["id"] in port["security_groups"] for port in await demo.ports(server["id"]))
        assert await shows("default", "web"), "who has asked for it reads it"
        assert await act("removeSecurityGroup", group["id"]) == 202
        assert all(group["id"] not in port["security_groups"] for port in await demo.ports(server["id"]))
        assert await shows("default")
        assert await act("removeSecurityGroup", "default") == 202
        assert "security_groups" not in await demo.server(server["id"])
