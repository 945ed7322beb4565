"""A cloud whose host runs QEMU: a server boots the bytes of its image, through API, conductors and agent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skep.config.sections import Config
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from tests.functional.test_images_of_servers import Images
from tests.support.boot_sectors import as_qcow2, bootable
from tests.support.libvirt_hosts import OPTIONS, PARTS, connection_in, host_directory

pytestmark = [*PARTS, pytest.mark.timeout(600)]

WORDS = b"the bytes of the image run"
# cld; xor ax, ax; mov ds, ax; mov si, WORDS; mov dx, the serial line; each byte until 0: out; then halt
CODE = bytes.fromhex("fc 31c0 8ed8 be167c baf803 ac 84c0 7403 ee ebf8 f4 ebfd")
BOOTS = bootable(CODE + WORDS + b"\r\n")
"""A disk whose first sector says some words on the serial line."""


def with_qemu(root: Path) -> Config:
    """Return the configuration of a cloud whose host runs QEMU."""
    config = http_config(root)
    options = {**OPTIONS, "directory": str(host_directory())}
    return msgspec.structs.replace(
        config, compute=msgspec.structs.replace(config.compute, driver="libvirt", driver_options=options)
    )


async def test_a_server_boots_its_image_and_so_does_an_image_of_it(tmp_path: Path) -> None:
    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        boots = await images.upload(as_qcow2(BOOTS, tmp_path), disk_format="qcow2")

        async def says(uuid: str, times: int) -> None:
            async def so() -> bool:
                answer = await session.ask("POST", f"/servers/{uuid}/action", {"os-getConsoleOutput": {}})
                return answer.status_code == 200 and answer.json()["output"].count(WORDS.decode()) == times

            await eventually(so, f"the guest has booted {times} times")

        uuid = await images.create("one", boots)
        await says(uuid, 1)
        for halt, status, before, go_on, times in (
            ("os-stop", "SHUTOFF", 1, {"os-start": None}, 2),
            ("pause", "PAUSED", 2, {"unpause": None}, 2),
            ("suspend", "SUSPENDED", 2, {"resume": None}, 2),
            ("rescue", "RESCUE", 3, {"unrescue": None}, 4),
        ):
            halting = await session.ask("POST", f"/servers/{uuid}/action", {halt: None})
            assert halting.is_success, halting.text
            await images.calm(uuid, status)
            await says(uuid, before)
            await images.act(uuid, go_on)
            await images.calm(uuid, "ACTIVE")
            await says(uuid, times)
        made = await images.image(uuid)
        await images.calm(uuid, "ACTIVE")
        other = await images.create("other", made)
        await says(other, 1)
        for one in (uuid, other):
            assert (await session.ask("DELETE", f"/servers/{one}")).status_code == 204

        async def nothing_left() -> bool:
            return [path for kind in ("guests", "bases") for path in (host_directory() / kind).iterdir()] == []

        await eventually(nothing_left, "nothing of the servers is left on the host")


async def test_a_server_with_a_port_that_user_mode_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        tiny = (await images.glance("GET", "?name=tiny")).json()["images"][0]["id"]
        token, url = {"X-Auth-Token": session.token}, f"{cloud.networks_url}/v2.0"
        made = await session.client.post(f"{url}/networks", json={"network": {"name": "inside"}}, headers=token)
        network = made.json()["network"]["id"]
        subnet = {"subnet": {"network_id": network, "ip_version": 6, "cidr": "fd07::/64"}}
        assert (await session.client.post(f"{url}/subnets", json=subnet, headers=token)).status_code == 201
        body = {"server": {"name": "one", "imageRef": tiny, "flavorRef": "1", "networks": [{"uuid": network}]}}
        uuid = (await session.ask("POST", "/servers", body)).json()["server"]["id"]
        await images.calm(uuid, "ERROR")
        assert "no fixed IPv4 address" in str((await images.server(uuid))["fault"])


async def test_parts_of_the_host_are_given_and_what_it_refuses_allocates_nothing(tmp_path: Path) -> None:
    """A flavor with a NUMA cell has one of the host; a key that no host gives is refused by name, at a rebuild, too."""

    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        images = Images(cloud, session)
        flavor = {"id": "7", "name": "cell", "vcpus": 1, "ram": 64, "disk": 1}
        assert (await session.ask("POST", "/flavors", {"flavor": flavor})).is_success
        specs = {"extra_specs": {"hw:numa_nodes": "1", "hw:watchdog_action": "pause"}}
        assert (await session.ask("POST", "/flavors/7/os-extra_specs", specs)).is_success
        found = []
        for name, properties in (("plain", {}), ("stateless", {"hw_firmware_stateless": "yes"})):
            found.append(await images.upload(BOOTS, name=name, **properties))

        async def create(image: str, status: str) -> str:
            body = {"server": {"name": "one", "imageRef": image, "flavorRef": "7", "networks": "none"}}
            answer = await session.ask("POST", "/servers", body, version="2.37")
            assert answer.status_code == 202, answer.text
            await images.calm(answer.json()["server"]["id"], status)
            return str(answer.json()["server"]["id"])

        plain, stateless = found
        uuid = await create(plain, "ACTIVE")
        connection = connection_in(host_directory())
        xml = connection.lookupByUUIDString(uuid).XMLDesc()
        assert "<memnode cellid='0' mode='strict' nodeset='0'/>" in xml
        assert "action='pause'" in xml

        await images.act(uuid, {"rebuild": {"imageRef": stateless}})
        await images.calm(uuid, "ACTIVE")
        path = f"/servers/{uuid}/os-instance-actions"
        newest = (await session.ask("GET", path)).json()["instanceActions"][0]["request_id"]
        [told] = (await session.ask("GET", f"{path}/{newest}", version="2.84")).json()["instanceAction"]["events"][-1:]
        assert "hw_firmware_stateless" in str(told["details"]), told
        assert connection.lookupByUUIDString(uuid).isActive()
        refused = await create(stateless, "ERROR")
        shown = await images.server(refused)
        assert "hw_firmware_stateless" in shown["fault"]["message"]
        assert shown["OS-EXT-SRV-ATTR:host"] is None
        assert [path.name for path in (host_directory() / "guests").iterdir()] == [f"{uuid}_1"]
        for one in (uuid, refused):
            assert (await session.ask("DELETE", f"/servers/{one}")).status_code == 204

        async def nothing_left() -> bool:
            return list((host_directory() / "guests").iterdir()) == []

        await eventually(nothing_left, "nothing of the servers is left on the host")
