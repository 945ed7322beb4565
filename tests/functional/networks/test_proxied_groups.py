"""Security groups that old clients ask the compute API for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from skep.config.networks import NetworksSettings
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.ids import new_uuid
from tests.functional.networks.asking import asker

GROUPS, RULES = "/os-security-groups", "/os-security-group-rules"


async def test_a_group_from_its_making_to_its_end(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        [default] = await ask("GET", GROUPS)
        assert default["name"] == "default"
        [rule] = [one for one in default["rules"] if one["ip_range"] == {}][:1]
        assert (rule["ip_protocol"], rule["group"]["name"]) == (None, "default")
        made = await ask("POST", GROUPS, {"security_group": {"name": "web", "description": "for all"}})
        assert (made["name"], made["description"], made["rules"]) == ("web", "for all", [])
        one = f"{GROUPS}/{made['id']}"
        assert await ask("GET", one) == made
        changed = await ask("PUT", one, {"security_group": {"name": "net", "description": ""}})
        assert changed == {**made, "name": "net", "description": ""}
        assert [found["name"] for found in await ask("GET", GROUPS)] == ["default", "net"]
        assert [found["name"] for found in await ask("GET", f"{GROUPS}?limit=1&offset=1")] == ["net"]
        assert [found["name"] for found in await ask("GET", f"{GROUPS}?limit=0")] == ["default", "net"]
        await ask("DELETE", one, status=202)
        for method, body in (("GET", None), ("DELETE", None), ("PUT", {"security_group": _named("x")})):
            await ask(method, one, body, status=404)


async def test_rules_in_old_words(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        group = (await ask("POST", GROUPS, {"security_group": _named("web")}))["id"]
        everywhere: dict[str, Any] = {"ip_range": {"cidr": "0.0.0.0/0"}, "group": {}}
        for said, shown in (
            (("tcp", 22, "23"), ("tcp", 22, 23)),
            (("UDP", 1, 65535), ("udp", 1, 65535)),
            (("icmp", -1, -1), ("icmp", -1, -1)),
            (("icmp", 8, 0), ("icmp", 8, 0)),
        ):
            made = await ask("POST", RULES, _rule(group, said))
            assert {**made, "id": ""} == {**_shown(group, shown), **everywhere}
            await ask("POST", RULES, _rule(group, said), status=400)
        of_six = await ask("POST", RULES, _rule(group, ("tcp", 22, 23), cidr="2001:db8::/32"))
        assert of_six["ip_range"] == {"cidr": "2001:db8::/32"}
        for protocol, first, last in (("tcp", 1, 65535), ("icmp", -1, -1)):
            of_group = await ask("POST", RULES, _rule(group, (protocol, None, None), group_id=group))
            assert (of_group["from_port"], of_group["to_port"]) == (first, last)
            assert (of_group["ip_range"], of_group["group"]["name"]) == ({}, "web")
        whole = await ask("POST", RULES, _rule(group, (None, None, None), group_id=group))
        assert (whole["ip_protocol"], whole["from_port"], whole["to_port"]) == (None, None, None)
        assert len((await ask("GET", f"{GROUPS}/{group}"))["rules"]) == 8
        await ask("DELETE", f"{RULES}/{whole['id']}", status=202)
        await ask("DELETE", f"{RULES}/{whole['id']}", status=404)


async def test_what_cannot_be_asked(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        group = (await ask("POST", GROUPS, {"security_group": _named("web")}))["id"]
        for body in (
            {},
            {"security_group": None},
            {"security_group": {"name": "x"}},
            {"security_group": {"description": "x"}},
            {"security_group": _named("x" * 256)},
            {"security_group": _named(7)},
            {"security_group": _named("default")},
        ):
            await ask("POST", GROUPS, body, status=400)
        for ports in (
            ("tcp", 23, 22),
            ("tcp", 0, 22),
            ("tcp", -1, -1),
            ("tcp", 1, 65536),
            ("tcp", "x", 1),
            ("tcp", None, None),
            (None, 1, 2),
            ("sctp", 1, 2),
            ("icmp", 256, 0),
            ("icmp", -1, 3),
            (7, 1, 2),
        ):
            await ask("POST", RULES, _rule(group, ports), status=400)
        for cidr in ("x", "10.0.0.0/33", "10.0.0.0/0", "10.0.0.0/x", "::1%eth0/128", 7):
            await ask("POST", RULES, _rule(group, ("tcp", 1, 2), cidr=cidr), status=400)
        await ask("POST", RULES, _rule(new_uuid(), ("tcp", 1, 2)), status=404)
        await ask("POST", RULES, _rule(group, ("tcp", 1, 2), group_id=new_uuid()), status=404)
        await ask("POST", RULES, _rule("web", ("tcp", 1, 2)), status=400)
        await ask("POST", RULES, _rule(group, ("tcp", 1, 2), group_id="web"), status=400)
        [default] = [one for one in await ask("GET", GROUPS) if one["name"] == "default"]
        await ask("DELETE", f"{GROUPS}/{default['id']}", status=400)
        for method, path in (("GET", GROUPS), ("DELETE", GROUPS), ("DELETE", RULES)):
            await ask(method, f"{path}/web", status=400)


async def test_other_projects_and_quotas(tmp_path: Path) -> None:
    async with (
        serving_cloud(http_config(tmp_path)) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        signed_in(cloud, "admin", "admin") as admin,
    ):
        ask, ask_admin = asker(demo), asker(admin)
        theirs = await ask_admin("POST", GROUPS, {"security_group": _named("theirs")})
        foreign = await ask_admin("POST", RULES, _rule(theirs["id"], ("tcp", 1, 2)))
        assert "theirs" not in [one["name"] for one in await ask("GET", f"{GROUPS}?all_tenants=1")]
        for method, body in (("GET", None), ("DELETE", None), ("PUT", {"security_group": _named("x")})):
            await ask(method, f"{GROUPS}/{theirs['id']}", body, status=404)
        await ask("DELETE", f"{RULES}/{foreign['id']}", status=404)
        mine = await ask("POST", GROUPS, {"security_group": _named("mine")})
        every = [one["name"] for one in await ask_admin("GET", f"{GROUPS}?all_tenants=1")]
        assert {"mine", "theirs"} <= set(every)
        assert "mine" not in [one["name"] for one in await ask_admin("GET", GROUPS)]
        url = f"{cloud.networks_url}/v2.0/quotas/{mine['tenant_id']}"
        quota = {"quota": {"security_group": 2, "security_group_rule": 0}}
        answer = await admin.client.put(url, json=quota, headers={"X-Auth-Token": admin.token})
        assert answer.status_code == 200, answer.text
        await ask("POST", GROUPS, {"security_group": _named("more")}, status=403)
        await ask("POST", RULES, _rule(mine["id"], ("tcp", 1, 2)), status=403)


async def test_the_last_microversion(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        await ask("GET", GROUPS, version="2.35")
        await ask("GET", GROUPS, version="2.36", status=404)
        await ask("POST", RULES, {}, version="2.36", status=404)


async def test_a_cloud_without_networks_says_so(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config) as cloud, signed_in(cloud, "demo", "demo") as demo:
        ask = asker(demo)
        group = f"{GROUPS}/{new_uuid()}"
        for method, path, body in (
            ("GET", GROUPS, None),
            ("GET", group, None),
            ("GET", f"{GROUPS}/web", None),
            ("POST", GROUPS, {"security_group": _named("x")}),
            ("PUT", group, {"security_group": _named("x")}),
            ("DELETE", group, None),
            ("POST", RULES, _rule(new_uuid(), ("tcp", 1, 2))),
            ("DELETE", f"{RULES}/{new_uuid()}", None),
        ):
            assert "are not part of this release" in str(await ask(method, path, body, status=404))


def _named(name: Any) -> dict[str, Any]:
    return {"name": name, "description": ""}


def _rule(group: str, ports: tuple[Any, Any, Any], **more: Any) -> dict[str, Any]:
    rule = {"parent_group_id": group, "ip_protocol": ports[0], "from_port": ports[1], "to_port": ports[2], **more}
    return {"security_group_rule": rule}


def _shown(group: str, ports: tuple[str, int, int]) -> dict[str, Any]:
    rule = _rule(group, ports)["security_group_rule"]
    return {"id": "", **rule}
