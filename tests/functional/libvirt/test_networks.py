"""Networks in user mode: a guest has the addresses of its ports, is reached by one loopback port, and reaches nothing.

Everything is what the guest itself says, on its serial line or by SSH.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from tests.functional.libvirt.test_cloud import with_qemu
from tests.functional.test_images_of_servers import Images
from tests.support import tiny_guests
from tests.support.libvirt_hosts import PARTS, host_directory
from tests.support.tiny_guests import inside, make_key, tiny_image

pytestmark = [*PARTS, *tiny_guests.PARTS, pytest.mark.timeout(600)]

CIDR = "10.7.0.0/24"
ADDRESS = "10.7.0.77"
MTU = 1400


class Guests(Images):
    """A cloud whose host runs QEMU, and its user."""

    async def upload(self, image: bytes, **properties: str) -> str:
        return await super().upload(image, **{"disk_format": "qcow2", **properties})

    async def make(self, kind: str, **said: Any) -> dict[str, Any]:
        """Make something of the network service."""
        url, headers = f"{self.cloud.networks_url}/v2.0/{kind}s", {"X-Auth-Token": self.session.token}
        answer = await self.session.client.post(url, json={kind: said}, headers=headers)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()[kind]
        return made

    async def import_key(self, public: str) -> None:
        answer = await self.session.ask("POST", "/os-keypairs", {"keypair": {"name": "mine", "public_key": public}})
        assert answer.status_code == 200, answer.text

    async def boot(self, name: str, image: str, *networks: dict[str, str], script: str = "") -> str:
        """Have a server that runs; it runs the script once it has booted."""
        wanted = {"name": name, "imageRef": image, "flavorRef": "1", "key_name": "mine", "config_drive": True}
        told = {"user_data": b64encode(script.encode()).decode(), "networks": networks}
        answer = await self.session.ask("POST", "/servers", {"server": wanted | told})
        assert answer.status_code == 202, answer.text
        uuid = str(answer.json()["server"]["id"])
        await self.calm(uuid, "ACTIVE")
        return uuid

    async def port(self, uuid: str) -> int:
        """Return the loopback port that leads to the guest."""
        answer = await self.session.ask("GET", f"/servers/{uuid}/diagnostics")
        assert answer.status_code == 200, answer.text
        return int(answer.json()["ssh.port"])

    async def console(self, uuid: str) -> str:
        answer = await self.session.ask("POST", f"/servers/{uuid}/action", {"os-getConsoleOutput": {}})
        return str(answer.json()["output"])

    async def says(self, uuid: str, words: str) -> None:
        async def so() -> bool:
            return words in await self.console(uuid)

        await eventually(so, f"the guest says {words}")

    async def delete(self, uuid: str) -> None:
        assert (await self.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await self.nothing_left()

    async def nothing_left(self) -> None:
        async def none() -> bool:
            return [path for kind in ("guests", "bases") for path in (host_directory() / kind).iterdir()] == []

        await eventually(none, "nothing of the servers is left on the host")


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def api_port(cloud: AllInOneCloud) -> int:
    return int(cloud.api_url.rsplit(":", 1)[1].split("/")[0])


async def test_a_guest_has_its_address_is_reached_and_reaches_nothing(tmp_path: Path) -> None:
    config, key = with_qemu(tmp_path), tmp_path / "key"
    public = make_key(key)
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = Guests(cloud, session)
        await guests.import_key(public)
        image = await guests.upload(tiny_image().read_bytes())
        network = (await guests.make("network", name="inside", mtu=MTU))["id"]
        subnet = (await guests.make("subnet", network_id=network, ip_version=4, cidr=CIDR))["id"]
        fixed = [{"subnet_id": subnet, "ip_address": ADDRESS}]
        port = await guests.make("port", network_id=network, fixed_ips=fixed)
        uuid = await guests.boot("one", image, {"port": port["id"]}, {"uuid": network})
        await guests.says(uuid, f"TINY-NIC eth0 {port['mac_address']} mtu={MTU}")
        await guests.says(uuid, f"TINY-ADDRESS eth0 {ADDRESS}/24")
        await guests.says(uuid, "TINY-ADDRESS eth1 10.7.0.")
        loopback = await guests.port(uuid)
        assert not is_free(loopback)
        assert await inside(key, loopback, "hostname") == "one\nstatus=0\n"
        # The port is one of the host's loopback; from inside neither that nor the API can be reached by any address.
        for address in ("10.7.0.1", "169.254.169.254", "10.0.2.2"):
            said = await inside(key, loopback, f"timeout 5 nc {address} {api_port(cloud)} </dev/null")
            assert "status=0" not in said, f"the control plane is reached at {address}"
        # What is there to be reached is heard from the host, so that the test could fail.
        socket.create_connection(("127.0.0.1", api_port(cloud))).close()
        # A hard reboot: the same port, the same disk.
        await guests.act(uuid, {"reboot": {"type": "HARD"}})
        await guests.calm(uuid, "ACTIVE")
        await guests.says(uuid, "boots=2")
        assert await guests.port(uuid) == loopback
        assert "one\n" in await inside(key, loopback, "hostname")
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = Guests(cloud, session)
        await guests.calm(uuid, "ACTIVE")
        assert await guests.port(uuid) == loopback, "the next agent finds the guest with its port"
        assert "2\n" in await inside(key, loopback, "cat /state/boots"), "it ran on"
        await guests.delete(uuid)
        assert is_free(loopback)


async def test_the_interface_is_of_the_model_that_the_image_wants_on_any_machine(tmp_path: Path) -> None:
    """The guest says the PCI identity of what is at the place of its first interface."""
    shapes = {
        "0x1af4 0x1000": {"hw_machine_type": "q35", "hw_cdrom_bus": "virtio"},
        "0x8086 0x100e": {"hw_vif_model": "e1000"},
        "0x10ec 0x8139": {"hw_vif_model": "rtl8139"},
    }
    script = "#!/bin/sh\ncd /sys/bus/pci/devices/0000:00:10.0 && echo is $(cat vendor device)\n"
    async with serving_cloud(with_qemu(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        guests = Guests(cloud, session)
        await guests.import_key(make_key(tmp_path / "key"))
        network = (await guests.make("network", name="inside"))["id"]
        await guests.make("subnet", network_id=network, ip_version=4, cidr="10.8.0.0/28")
        servers = {}
        for identity, shape in shapes.items():
            image = await guests.upload(tiny_image().read_bytes(), **shape)
            servers[identity] = await guests.boot("one", image, {"uuid": network}, script=script)
        for identity, uuid in servers.items():
            await guests.says(uuid, f"is {identity}")
        ports = [await guests.port(uuid) for uuid in servers.values()]
        assert len(set(ports)) == len(shapes), "each has a loopback port of its own"
        assert await inside(tmp_path / "key", ports[0], "hostname") == "one\nstatus=0\n"
        for uuid in servers.values():
            assert (await session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await guests.nothing_left()
