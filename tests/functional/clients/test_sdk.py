"""openstacksdk, and bodies as gophercloud sends them, against a running Skep."""

from __future__ import annotations

import asyncio
from pathlib import Path

import openstack
import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the SDK leaves its sockets to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def connect(cloud: AllInOneCloud) -> openstack.connection.Connection:
    """Return a connection of the SDK by the file that the cloud wrote."""
    config = openstack.config.OpenStackConfig(config_files=[str(cloud.clouds_yaml)])
    return openstack.connection.Connection(config=config.get_one(cloud="skep"))


async def test_the_sdk_builds_shows_and_deletes(tmp_path: Path) -> None:
    def story(cloud: AllInOneCloud) -> None:
        with connect(cloud) as sdk:
            image = sdk.image.find_image("tiny", ignore_missing=False)
            flavor = sdk.compute.find_flavor("m1.tiny", ignore_missing=False)
            server = sdk.compute.create_server(
                name="sdk", image_id=image.id, flavor_id=flavor.id, networks="none", metadata={"a": "b"}
            )
            server = sdk.compute.wait_for_server(server, wait=PATIENCE)
            assert server.status == "ACTIVE"
            assert server.metadata == {"a": "b"}
            assert [one.id for one in sdk.compute.servers()] == [server.id]
            assert sdk.compute.find_server("sdk", ignore_missing=False).id == server.id
            sdk.compute.reboot_server(server, "SOFT")
            sdk.compute.wait_for_server(server, wait=PATIENCE)
            assert {one.action for one in sdk.compute.server_actions(server)} == {"create", "reboot"}
            sdk.compute.delete_server(server)
            sdk.compute.wait_for_delete(server, wait=PATIENCE)
            assert list(sdk.compute.servers()) == []
            assert len(list(sdk.compute.hypervisors(details=True))) == 6
            assert len(list(sdk.compute.services())) >= 6

    async with serving_cloud(http_config(tmp_path)) as cloud:
        await asyncio.to_thread(story, cloud)


async def image_id(cloud: AllInOneCloud, session: ComputeSession) -> str:
    """Return the id of the seeded image."""
    answer = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    return str(answer.json()["images"][0]["id"])


async def test_bodies_as_gophercloud_sends_them(tmp_path: Path) -> None:
    """Microversion 2.1, no `networks`, links followed from the answer, `accessIPv4` set by update."""
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud, "demo", "demo") as session:
        body = {"server": {"name": "go", "imageRef": await image_id(cloud, session), "flavorRef": "1"}}
        made = await session.client.post("/servers", json=body, headers={"X-Auth-Token": session.token})
        assert made.status_code == 202
        server = made.json()["server"]
        assert set(server) == {"id", "links", "OS-DCF:diskConfig", "adminPass", "security_groups"}

        async def active() -> bool:
            shown = (await session.ask("GET", f"/servers/{server['id']}")).json()["server"]
            return bool(shown["status"] == "ACTIVE")

        await eventually(active, "the server is ACTIVE")
        changed = await session.ask("PUT", f"/servers/{server['id']}", {"server": {"accessIPv4": "192.0.2.7"}})
        assert changed.json()["server"]["accessIPv4"] == "192.0.2.7"
        volume = {
            "server": {
                "name": "go2",
                "flavorRef": "1",
                "block_device_mapping_v2": [
                    {
                        "boot_index": 0,
                        "uuid": await image_id(cloud, session),
                        "source_type": "image",
                        "destination_type": "local",
                        "delete_on_termination": True,
                    }
                ],
            }
        }
        assert (await session.ask("POST", "/servers", volume)).status_code == 202


@pytest.mark.parametrize(
    ("change", "status", "named"),
    [
        ({"imageRef": "11111111-1111-1111-1111-111111111111"}, 400, "image"),
        ({"flavorRef": "nope"}, 400, "lavor"),
        ({"name": ""}, 400, "name"),
        ({"name": "x" * 256}, 400, "name"),
        ({"name": "a\u0000b"}, 400, "name"),
        ({"flavorRef": {"x": 1}}, 400, "flavorRef"),
        ({"metadata": {"k": "v" * 256}}, 400, "metadata"),
        ({"metadata": {"k": 1.5}}, 400, "metadata"),
        ({"unknown": 1}, 400, "unknown"),
        ({"networks": [{"uuid": "11111111-1111-1111-1111-111111111111"}]}, 400, "network"),
        ({"key_name": "absent"}, 400, "key_name"),
        ({"min_count": 3, "max_count": 2}, 400, "min_count"),
        ({"availability_zone": "moon"}, 400, "availability zone"),
        ({"user_data": "not base64!"}, 400, "user_data"),
        ({"min_count": 11}, 403, "Quota"),
    ],
)
async def test_bad_creates_are_refused_and_store_nothing(
    shared_cloud: AllInOneCloud, change: dict[str, object], status: int, named: str
) -> None:
    async with signed_in(shared_cloud) as session:
        body = {"name": "bad", "imageRef": await image_id(shared_cloud, session), "flavorRef": "1", **change}
        answer = await session.ask("POST", "/servers", {"server": body})
        assert answer.status_code == status, answer.text
        assert named.lower() in answer.text.lower()
        listed = await session.ask("GET", "/servers?all_tenants=1")
        assert listed.json()["servers"] == []
        limits = (await session.ask("GET", "/limits")).json()["limits"]["absolute"]
        assert limits["totalInstancesUsed"] == 0
