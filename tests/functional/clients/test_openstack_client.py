"""The real `openstack` client against a running Skep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from skep.config.networks import NetworksSettings
from skep.config.sections import QuotaSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from tests.support.openstack import openstack, openstack_quiet, refusal


async def test_a_server_from_create_to_delete(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yaml = cloud.clouds_yaml
        made = await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        assert made["status"] == "ACTIVE"
        assert made["name"] == "one"
        assert [server["Name"] for server in await openstack(yaml, "server", "list")] == ["one"]
        shown = await openstack(yaml, "server", "show", "one")
        assert shown["OS-EXT-SRV-ATTR:host"].startswith("cell")
        assert shown["id"] == made["id"]
        await openstack_quiet(yaml, "server", "set", "--property", "colour=red", "--name", "uno", "one")
        await openstack_quiet(yaml, "server", "set", "--tag", "blue", "uno")
        shown = await openstack(yaml, "server", "show", "uno")
        assert shown["properties"] == {"colour": "red"}
        assert shown["tags"] == ["blue"]
        await openstack_quiet(yaml, "server", "stop", "uno")
        await status_is(yaml, "uno", "SHUTOFF")
        await openstack_quiet(yaml, "server", "start", "uno")
        await status_is(yaml, "uno", "ACTIVE")
        await openstack_quiet(yaml, "server", "reboot", "--hard", "--wait", "uno")
        events = await openstack(yaml, "server", "event", "list", "uno")
        assert {event["Action"] for event in events} == {"create", "stop", "start", "reboot"}
        request_id = next(event["Request ID"] for event in events if event["Action"] == "create")
        event = await openstack(yaml, "server", "event", "show", "uno", request_id)
        assert event["action"] == "create"
        await openstack_quiet(yaml, "server", "delete", "--wait", "uno")
        assert await openstack(yaml, "server", "list") == []


async def test_an_ordinary_user_and_what_a_host_is_to_an_admin(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yaml = cloud.clouds_yaml
        made = await openstack(
            yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "mine", cloud="skep-demo"
        )
        assert "OS-EXT-SRV-ATTR:host" not in made or made["OS-EXT-SRV-ATTR:host"] is None
        assert "403" in await refusal(yaml, "hypervisor", "list", cloud="skep-demo")
        assert len(await openstack(yaml, "hypervisor", "list", "--long")) == 6
        assert len(await openstack(yaml, "compute", "service", "list", "--service", "nova-compute")) == 6
        assert [zone["Zone Name"] for zone in await openstack(yaml, "availability", "zone", "list", "--compute")]
        all_servers = await openstack(yaml, "server", "list", "--all-projects")
        assert [server["Name"] for server in all_servers] == ["mine"]
        assert await openstack(yaml, "server", "list") == []


async def test_aggregates_zones_groups_and_disabled_hosts_decide_where(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "aggregate", "create", "--zone", "west", "racks")
        await openstack(yaml, "aggregate", "add", "host", "racks", "cell2-host2")
        create = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait")
        west = await openstack(yaml, *create, "--availability-zone", "west", "west")
        assert west["OS-EXT-SRV-ATTR:host"] == "cell2-host2"
        forced = await openstack(yaml, *create, "--availability-zone", "nova:cell1-host3", "forced")
        assert forced["OS-EXT-SRV-ATTR:host"] == "cell1-host3"
        asked = await openstack(yaml, "--os-compute-api-version", "2.90", *create, "--host", "cell1-host2", "asked")
        assert asked["OS-EXT-SRV-ATTR:host"] == "cell1-host2"
        group = await openstack(yaml, "server", "group", "create", "--policy", "anti-affinity", "apart")
        hosts = set()
        for number in range(3):
            member = await openstack(yaml, *create, "--hint", f"group={group['id']}", f"apart{number}")
            hosts.add(member["OS-EXT-SRV-ATTR:host"])
        assert len(hosts) == 3
        for number in (1, 2, 3):
            await openstack_quiet(yaml, "compute", "service", "set", "--disable", f"cell1-host{number}", "nova-compute")
        late = await openstack(yaml, *create, "late")
        assert late["OS-EXT-SRV-ATTR:host"].startswith("cell2-")


async def test_no_valid_host_says_why(tmp_path: Path) -> None:
    quota = QuotaSettings(instances=-1, cores=-1, ram=-1)
    async with serving_cloud(http_config(tmp_path, quota=quota)) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "flavor", "create", "--ram", "9000000", "--vcpus", "1", "--disk", "1", "huge")
        made = await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "huge", "big")
        await status_is(yaml, "big", "ERROR")
        shown = await openstack(yaml, "server", "show", made["id"])
        assert "No valid host: 6 hosts considered" in shown["fault"]["message"]
        assert "MEMORY_MB" in shown["fault"]["message"]
        await openstack_quiet(yaml, "server", "delete", "--wait", "big")


async def test_quota_flavors_and_limits(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yaml = cloud.clouds_yaml
        create = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny")
        assert "403" in await refusal(yaml, *create, "--min", "11", "--max", "11", "many")
        await openstack_quiet(yaml, "quota", "set", "--instances", "2", "admin")
        await openstack(yaml, *create, "--min", "1", "--max", "2", "--wait", "few")
        assert "403" in await refusal(yaml, *create, "one-more")
        limits = {one["Name"]: one["Value"] for one in await openstack(yaml, "limits", "show", "--absolute")}
        assert (limits["max_total_instances"], limits["total_instances_used"]) == (2, 2)
        flavor = await openstack(yaml, "flavor", "create", "--ram", "64", "--vcpus", "1", "--property", "a:b=c", "nano")
        assert flavor["properties"] == {"a:b": "c"}
        await openstack_quiet(yaml, "flavor", "delete", "nano")
        assert "absent" in await refusal(yaml, "server", "show", "absent")


async def status_is(yaml: Path, name: str, status: str) -> None:
    """Wait for a server's status, as the client shows it."""

    async def probe() -> bool:
        shown: dict[str, Any] = await openstack(yaml, "server", "show", name)
        return bool(shown["status"] == status)

    await eventually(probe, f"{name} is {status}")


async def test_what_a_cloud_has_not_is_called_by_its_name(tmp_path: Path) -> None:
    config = msgspec.structs.replace(http_config(tmp_path), networks=NetworksSettings(kind="none"))
    async with serving_cloud(config) as cloud:
        create = ("server", "create", "--image", "tiny", "--flavor", "m1.tiny")
        for arguments, noun in (
            ((*create, "--network", "private", "one"), "networks"),
            ((*create, "--security-group", "web", "one"), "security groups"),
        ):
            assert f"{noun} are not part of this release" in await refusal(cloud.clouds_yaml, *arguments)
