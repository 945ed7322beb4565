"""What servers boot from reaches their hosts: in one process from its store, elsewhere by a user of the hosts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from skep.compute.drivers.fake import DISKS
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.image_transfers import Taker
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.host_images import HostImages
from skep.processes.seeds import passwords_in

OF_DEMO = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId("demo"), user_id=UserId("user"))


def disks(cloud: AllInOneCloud) -> dict[InstanceUuid, bytes]:
    """Return the content of all disks of fake guests."""
    found = [FakeDisks(path) for path in cloud.directory.root.glob(f"hosts/*/*/{DISKS}")]
    return {uuid: one.content(uuid, attempt) for one in found for uuid, attempt in one.labels()}


async def test_a_guest_has_the_bytes_that_were_uploaded(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        images = f"{cloud.images_url}/v2/images"
        token = {"X-Auth-Token": session.token}
        described = {"name": "own", "disk_format": "raw", "container_format": "bare"}
        made = (await session.client.post(images, json=described, headers=token)).json()
        sent = await session.client.put(
            f"{images}/{made['id']}/file",
            content=b"what it boots from",
            headers={**token, "Content-Type": "application/octet-stream"},
        )
        assert sent.status_code == 204
        body = {"server": {"name": "one", "imageRef": made["id"], "flavorRef": "1", "networks": "none"}}
        answer = await session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        uuid = InstanceUuid(answer.json()["server"]["id"])

        async def active() -> bool:
            server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
            assert server["status"] != "ERROR", server
            return bool(server["status"] == "ACTIVE")

        await eventually(active, "the server is active")
        assert disks(cloud) == {uuid: b"what it boots from"}
        assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204

        async def gone() -> bool:
            return (await session.ask("GET", f"/servers/{uuid}")).status_code == 404 and not disks(cloud)

        await eventually(gone, "nothing of the server is left")


async def test_a_host_elsewhere_gets_what_its_user_may_read_and_no_more(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = f"{cloud.images_url}/v2/images"
        token = {"X-Auth-Token": session.token}
        described = {"name": "private", "disk_format": "raw", "container_format": "bare", "visibility": "private"}
        private = (await session.client.post(images, json=described, headers=token)).json()["id"]
        tiny = (await session.client.get(f"{images}?name=tiny", headers=token)).json()["images"][0]
        expected = (await session.client.get(f"{images}/{tiny['id']}/file", headers=token)).content
        user = msgspec.structs.replace(
            cloud.config.compute.images,
            auth_url=cloud.identity_url,
            username="demo",
            password=passwords_in(cloud.clouds_yaml)["demo"],
            project_name="demo",
        )
        config = msgspec.structs.replace(
            cloud.config, compute=msgspec.structs.replace(cloud.config.compute, images=user)
        )
        host = HostImages(config, tmp_path / "images", cloud.clock)
        assert host.cache is not None
        try:
            there = await cloud.http.neighbours.images.get(tiny["id"], OF_DEMO)
            path = await host.cache.take(there, Taker(OF_DEMO))
            assert isinstance(path, Path)
            assert path.read_bytes() == expected
            refused = await host.cache.take(msgspec.structs.replace(there, id=private), Taker(OF_DEMO))
            assert isinstance(refused, BuildFailure)
            assert refused.error == "ImageUnacceptable"
        finally:
            await host.close()


async def test_a_host_in_a_process_of_its_own_gets_no_images_without_a_user(tmp_path: Path) -> None:
    config = http_config(tmp_path)
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        host = HostImages(config, tmp_path / "images", cloud.clock)
        assert host.cache is None
        await host.close()


async def test_a_host_elsewhere_stores_images_only_where_its_operator_says_so(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = f"{cloud.images_url}/v2/images"
        token = {"X-Auth-Token": session.token}
        described = {"name": "of a server", "disk_format": "raw", "container_format": "bare", "visibility": "private"}
        made = (await session.client.post(images, json=described, headers=token)).json()
        for store in (False, True):
            user = msgspec.structs.replace(
                cloud.config.compute.images,
                auth_url=cloud.identity_url,
                username="admin",
                password=passwords_in(cloud.clouds_yaml)["admin"],
                project_name="admin",
                store=store,
            )
            compute = msgspec.structs.replace(cloud.config.compute, images=user)
            config = msgspec.structs.replace(cloud.config, compute=compute)
            host = HostImages(config, tmp_path / "host" / "images", cloud.clock)
            try:
                assert (host.snapshots is not None) is store
                if host.snapshots is not None:
                    owner = msgspec.structs.replace(OF_DEMO, project_id=ProjectId(made["owner"]))
                    with host.snapshots.file() as file:
                        file.write_bytes(b"the disk")
                        assert await host.snapshots.send(file, made["id"], Taker(owner), lambda: True) is None
                        refused = await host.snapshots.send(file, made["id"], Taker(OF_DEMO), lambda: True)
                        assert refused is not None
                        assert refused.startswith("ImageNotFound")
            finally:
                await host.close()
        stored = (await session.client.get(f"{images}/{made['id']}/file", headers=token)).content
        assert stored == b"the disk"
