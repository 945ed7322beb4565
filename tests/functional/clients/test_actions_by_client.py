"""Actions of the real `openstack` client beyond start, stop and reboot."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skep.cli.openstack_client import client_environment
from skep.config.sections import RetentionSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from tests.support.openstack import openstack, openstack_quiet


async def test_pausing_and_suspending(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")

        async def comes_to(word: str, status: str) -> None:
            await openstack_quiet(yaml, "server", word, "one")

            async def is_so() -> bool:
                return bool((await openstack(yaml, "server", "show", "one"))["status"] == status)

            await eventually(is_so, f"the server is {status}")

        await comes_to("pause", "PAUSED")
        await comes_to("unpause", "ACTIVE")
        await comes_to("suspend", "SUSPENDED")
        await comes_to("resume", "ACTIVE")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "pause", "unpause", "suspend", "resume"}


async def test_actions_of_rows(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        newest = ("--os-compute-api-version", "2.96")

        async def shown() -> tuple[object, ...]:
            server = await openstack(yaml, *newest, "server", "show", "one")
            return server["locked"], server["locked_reason"], server["status"]

        await openstack_quiet(yaml, *newest, "server", "lock", "--reason", "audit", "one")
        assert await shown() == (True, "audit", "ACTIVE")
        listed = await openstack(yaml, *newest, "server", "list", "--locked")
        assert [server["Name"] for server in listed] == ["one"]
        await openstack_quiet(yaml, "server", "unlock", "one")
        assert await shown() == (False, None, "ACTIVE")
        await openstack_quiet(yaml, "server", "set", "--auto-approve", "--state", "error", "one")
        assert await shown() == (False, None, "ERROR")
        await openstack_quiet(yaml, "server", "set", "--auto-approve", "--state", "active", "one")
        assert await shown() == (False, None, "ACTIVE")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "lock", "unlock", "resetState"}
        await openstack_quiet(yaml, "server", "delete", "--force", "--wait", "one")
        assert await openstack(yaml, "server", "list") == []


async def test_making_an_image_of_a_server(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        made = await openstack(
            yaml, "server", "image", "create", "--name", "of-one", "--property", "colour=blue", "--wait", "one"
        )
        assert (made["name"], made["status"]) == ("of-one", "active")
        shown = await openstack(yaml, "image", "show", "of-one")
        assert (shown["properties"]["image_type"], shown["properties"]["colour"]) == ("snapshot", "blue")
        await openstack(yaml, "server", "create", "--image", "of-one", "--flavor", "m1.tiny", "--wait", "two")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "createImage"}


async def test_backing_a_server_up(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        for name in ("first", "second"):
            made = await openstack(
                yaml, "server", "backup", "create", "--name", name, "--type", "daily", "--rotate", "1", "--wait", "one"
            )
            assert made["name"] == name

            async def alone(name: str = name) -> bool:
                listed = await openstack(yaml, "image", "list", "--private")
                return [image["Name"] for image in listed] == [name]

            await eventually(alone, f"backup {name} is the only one")


async def test_restoring(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        http_config(tmp_path), retention=RetentionSettings(reclaim_instance_interval=86_400)
    )
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        uuid = (await openstack(yaml, "server", "show", "one"))["id"]

        async def comes_to(status: str) -> None:
            async def is_so() -> bool:
                return bool((await openstack(yaml, "server", "show", uuid))["status"] == status)

            await eventually(is_so, f"the server is {status}")

        await openstack_quiet(yaml, "server", "delete", uuid)
        await comes_to("SOFT_DELETED")
        assert await openstack(yaml, "server", "list") == []
        listed = await openstack(yaml, "server", "list", "--all-projects", "--deleted")
        assert [(server["ID"], server["Status"]) for server in listed] == [(uuid, "SOFT_DELETED")]
        await openstack_quiet(yaml, "server", "restore", uuid)
        await comes_to("ACTIVE")
        events = await openstack(yaml, "server", "event", "list", uuid)
        assert {event["Action"] for event in events} == {"create", "delete", "restore"}


async def test_migrating_with_confirm_and_revert(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")

        async def shown() -> tuple[str, str]:
            server = await openstack(yaml, "server", "show", "one")
            return str(server["status"]), str(server["OS-EXT-SRV-ATTR:host"])

        _, first = await shown()
        await openstack_quiet(yaml, "server", "migrate", "--wait", "one")
        status, second = await shown()
        assert (status, second == first) == ("VERIFY_RESIZE", False)
        await openstack_quiet(yaml, "server", "migration", "revert", "one")
        await _is(yaml, ("ACTIVE", first))
        newest = ("--os-compute-api-version", "2.96")
        await openstack_quiet(yaml, *newest, "server", "migrate", "--host", second, "--wait", "one")
        assert await shown() == ("VERIFY_RESIZE", second)
        await openstack_quiet(yaml, "server", "migration", "confirm", "one")
        await _is(yaml, ("ACTIVE", second))
        listed = await openstack(yaml, *newest, "server", "migration", "list")
        assert [(one["Type"], one["Status"], one["Dest Compute"]) for one in listed] == [
            ("migration", "confirmed", second),
            ("migration", "reverted", second),
        ]
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "migrate", "revertResize", "confirmResize"}
        ours = await _skep(yaml, "migration", "list", "--server", "one", "--limit", "1")
        assert [(one["status"], one["source"], one["destination"]) for one in ours] == [("confirmed", first, second)]
        assert await _skep(yaml, "migration", "show", ours[0]["id"]) == ours[0]
        assert await _skep(yaml, "migration", "list", "--status", "running") == []


async def _skep(yaml: Path, *arguments: str) -> Any:
    """Run one of our own commands and return what it printed as JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.cli",
        *arguments,
        "--format",
        "json",
        env=client_environment(yaml, "skep"),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    return json.loads(printed)


async def _is(yaml: Path, wanted: tuple[str, str]) -> None:
    async def is_so() -> bool:
        server = await openstack(yaml, "server", "show", "one")
        return (server["status"], server["OS-EXT-SRV-ATTR:host"]) == wanted

    await eventually(is_so, f"the server is {wanted[0]} on {wanted[1]}")
