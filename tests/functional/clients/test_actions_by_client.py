"""Actions of the real `openstack` client beyond start, stop and reboot."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from skep.cli.openstack_client import client_environment
from skep.compute.drivers.fake import DISKS, DUMP, INSIDES, RESCUE
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.fake_inside import GuestInsides
from skep.config.compute import FakeFailure
from skep.config.sections import RetentionSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import http_config, serving_cloud
from tests.support.openstack import openstack, openstack_quiet, refusal


async def test_pausing_and_suspending(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")

        async def comes_to(status: str, *command: str) -> None:
            await openstack_quiet(yaml, *command, "one")

            async def is_so() -> bool:
                return bool((await openstack(yaml, "server", "show", "one"))["status"] == status)

            await eventually(is_so, f"the server is {status}")

        await comes_to("PAUSED", "server", "pause")
        await comes_to("ACTIVE", "server", "unpause")
        await comes_to("SUSPENDED", "server", "suspend")
        await comes_to("ACTIVE", "server", "resume")
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


async def test_shelving_and_unshelving(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")

        async def comes_to(status: str) -> None:
            async def is_so() -> bool:
                server = await openstack(yaml, "server", "show", "one")
                return (server["status"], server["OS-EXT-STS:task_state"]) == (status, None)

            await eventually(is_so, f"the server is {status}")

        await openstack_quiet(yaml, "server", "shelve", "one")
        await comes_to("SHELVED_OFFLOADED")
        shown = await openstack(yaml, "image", "show", "one-shelved")
        assert (shown["status"], shown["visibility"]) == ("active", "private")
        newest = ("--os-compute-api-version", "2.91")
        await openstack_quiet(yaml, *newest, "server", "unshelve", "--host", "cell1-host2", "one")
        await _is(yaml, ("ACTIVE", "cell1-host2"))

        async def gone() -> bool:
            return [image["Name"] for image in await openstack(yaml, "image", "list")] == ["tiny"]

        await eventually(gone, "its image is deleted")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "shelve", "unshelve"}


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


async def test_asking_about_a_guest(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        assert "one booted from its own disk" in await openstack_quiet(yaml, "console", "log", "show", "one")
        shown = await openstack(yaml, "--os-compute-api-version", "2.48", "server", "show", "--diagnostics", "one")
        assert (shown["state"], shown["driver"], shown["num_disks"]) == ("running", "libvirt", 1)
        shown = await openstack(yaml, "--os-compute-api-version", "2.78", "server", "show", "--topology", "one")
        assert shown["topology"] == {"nodes": [], "pagesize_kb": None}


async def test_rescuing(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        await openstack_quiet(yaml, "server", "rescue", "--image", "tiny", "--password", "of-the-rescue", "one")
        await _is(yaml, ("RESCUE", "cell1-host1"))
        (guest,) = cloud.directory.root.glob(f"hosts/*/*/{RESCUE}/{INSIDES}/*.json")
        assert json.loads(guest.read_bytes())["admin_password"] == "of-the-rescue"
        await openstack_quiet(yaml, "server", "unrescue", "one")
        await _is(yaml, ("ACTIVE", "cell1-host1"))
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "rescue", "unrescue"}


async def test_a_new_password_and_a_crash(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        await openstack_quiet(yaml, "server", "set", "--password", "a-new-one", "one")
        await _is(yaml, ("ACTIVE", "cell1-host1"))
        (guest,) = cloud.directory.root.glob(f"hosts/*/*/{INSIDES}/*.json")
        assert json.loads(guest.read_bytes())["admin_password"] == "a-new-one"
        await openstack_quiet(yaml, "--os-compute-api-version", "2.17", "server", "dump", "create", "one")

        async def crashed() -> bool:
            return [file["path"] for file in json.loads(guest.read_bytes())["files"]] == [DUMP]

        await eventually(crashed, "the guest has a dump")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "changePassword", "trigger_crash_dump"}


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
        # The former words for both, which the client still takes.
        assert "vm_state active" in await refusal(yaml, "server", "migrate", "confirm", "one")
        assert "vm_state active" in await refusal(yaml, "server", "migrate", "revert", "one")
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


async def test_resizing_with_confirm_and_revert(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        newest = ("--os-compute-api-version", "2.96")

        async def has(status: str, flavor: str) -> None:
            async def is_so() -> bool:
                server = await openstack(yaml, *newest, "server", "show", "one")
                return (server["status"], server["flavor"]["original_name"]) == (status, flavor)

            await eventually(is_so, f"the server is {status} and {flavor}")

        await openstack_quiet(yaml, "server", "resize", "--flavor", "m1.small", "--wait", "one")
        await has("VERIFY_RESIZE", "m1.small")
        await openstack_quiet(yaml, "server", "resize", "revert", "one")
        await has("ACTIVE", "m1.tiny")
        await openstack_quiet(yaml, "server", "resize", "--flavor", "m1.small", "--wait", "one")
        await openstack_quiet(yaml, "server", "resize", "confirm", "one")
        await has("ACTIVE", "m1.small")
        listed = await openstack(yaml, "server", "list", "--flavor", "m1.small")
        assert [server["Name"] for server in listed] == ["one"]
        moves = await openstack(yaml, *newest, "server", "migration", "list")
        assert [(one["Type"], one["Status"], one["Old Flavor"], one["New Flavor"]) for one in moves] == [
            ("resize", "confirmed", 1, 2),
            ("resize", "reverted", 1, 2),
        ]
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "resize", "revertResize", "confirmResize"}


async def test_live_migrations_with_abort_and_forced_end(tmp_path: Path) -> None:
    busy = FakeFailure(operation="converge")
    async with serving_cloud(http_config(tmp_path, failures=(busy,)), cells=1, hosts=2) as cloud:
        yaml, newest = cloud.clouds_yaml, ("--os-compute-api-version", "2.96")
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        first = str((await openstack(yaml, "server", "show", "one"))["OS-EXT-SRV-ATTR:host"])

        async def copied() -> dict[str, Any]:
            await openstack_quiet(yaml, *newest, "server", "migrate", "--live-migration", "one")
            found: dict[str, Any] = {}

            async def is_so() -> bool:
                listed = await openstack(yaml, *newest, "server", "migration", "list", "--server", "one")
                found.update(listed[0])
                shown = await _skep(yaml, "migration", "show", found["UUID"])
                return found["Status"] == "running" and "memory_total_bytes" in shown

            await eventually(is_so, "the server is copied")
            return found

        one = await copied()
        assert (await openstack(yaml, "server", "show", "one"))["status"] == "MIGRATING"
        shown = await _skep(yaml, "migration", "show", one["UUID"])
        assert shown["memory_total_bytes"] == 512 * 2**20
        # By a number the client of this release asks for the server and the migration in each other's place.
        shown = await openstack(yaml, *newest, "server", "migration", "show", "one", str(one["UUID"]))
        assert (shown["ID"], shown["Status"], shown["Source Compute"]) == (one["Id"], "running", first)
        assert (shown["Memory Total Bytes"], shown["Dest Compute"]) == (512 * 2**20, one["Dest Compute"])
        await openstack_quiet(yaml, *newest, "server", "migration", "abort", "one", str(one["Id"]))
        await _is(yaml, ("ACTIVE", first))
        two = await copied()
        await openstack_quiet(yaml, *newest, "server", "migration", "force", "complete", "one", str(two["Id"]))
        second = str(two["Dest Compute"])
        assert second != first
        await _is(yaml, ("ACTIVE", second))
        ours = await _skep(yaml, "migration", "list", "--server", "one")
        assert [(one["type"], one["status"]) for one in ours] == [
            ("live-migration", "completed"),
            ("live-migration", "cancelled"),
        ]
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {
            "create",
            "live-migration",
            "live_migration_cancel",
            "live_migration_force_complete",
        }


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


async def test_evacuating(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")

        async def shown() -> dict[str, Any]:
            found: dict[str, Any] = await openstack(yaml, "server", "show", "one")
            return found

        before = (await shown())["OS-EXT-SRV-ATTR:host"]
        newer = ("--os-compute-api-version", "2.68")
        await openstack_quiet(yaml, *newer, "compute", "service", "set", "--down", before, "nova-compute")

        async def is_down() -> bool:
            services = await openstack(yaml, *newer, "compute", "service", "list", "--host", before)
            return {one["State"] for one in services} == {"down"}

        await eventually(is_down, "the host is down")
        await openstack(yaml, *newer, "server", "evacuate", "--password", "opensesame", "one")

        async def is_elsewhere() -> bool:
            found = await shown()
            return bool(found["status"] == "ACTIVE" and found["OS-EXT-SRV-ATTR:host"] != before)

        await eventually(is_elsewhere, "the server runs elsewhere")
        newest = ("--os-compute-api-version", "2.80")
        [moved] = await openstack(yaml, *newest, "server", "migration", "list")
        # The host lives and clears what it had: then the evacuation is completed.
        assert (moved["Type"], moved["Source Compute"]) == ("evacuation", before)
        assert moved["Status"] in ("done", "completed")
        events = await openstack(yaml, "server", "event", "list", "one")
        assert {event["Action"] for event in events} == {"create", "evacuate"}


async def test_rebuilding(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud:
        yaml = cloud.clouds_yaml
        await openstack(yaml, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "one")
        await openstack(yaml, "server", "image", "create", "--name", "of-one", "--wait", "one")
        [home] = cloud.directory.root.glob("hosts/*/*")
        [(uuid, attempt)] = FakeDisks(home / DISKS).labels()
        newest = ("--os-compute-api-version", "2.96")
        asked = ("--image", "of-one", "--name", "two", "--password", "sesame", "--property", "colour=blue")
        more = ("--description", "anew", "--hostname", "two-host", "--no-preserve-ephemeral")
        await openstack_quiet(yaml, *newest, "server", "rebuild", *asked, *more, "--wait", "one")
        shown = await openstack(yaml, *newest, "server", "show", "two")
        assert (shown["id"], shown["status"], shown["description"]) == (uuid, "ACTIVE", "anew")
        assert (shown["properties"], shown["image"].partition(" ")[0]) == ({"colour": "blue"}, "of-one")
        assert shown["OS-EXT-SRV-ATTR:hostname"] == "two-host"
        inside = GuestInsides(home / INSIDES).read(uuid)
        assert inside is not None
        assert inside.admin_password == "sesame"

        async def alone() -> bool:
            return [one for _, one in FakeDisks(home / DISKS).labels()] == [attempt + 1]

        await eventually(alone, "the old disk is gone")
        await openstack_quiet(yaml, "server", "stop", "two")
        await _status(yaml, "two", "SHUTOFF")
        await openstack_quiet(yaml, "server", "rebuild", "two")
        await _status(yaml, "two", "SHUTOFF")
        events = await openstack(yaml, "server", "event", "list", "two")
        assert [event["Action"] for event in events].count("rebuild") == 2


async def _status(yaml: Path, name: str, wanted: str) -> None:
    async def is_so() -> bool:
        return bool((await openstack(yaml, "server", "show", name))["status"] == wanted)

    await eventually(is_so, f"the server is {wanted}")
