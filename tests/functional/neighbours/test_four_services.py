"""A cloud beside a real Keystone, Glance, Neutron and Cinder, two of which die while servers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.config import load
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, serving_cloud
from skep.contracts.loopback import plain_client
from skep.processes.ports import free_port
from skep_lab.neighbours import networks, volumes
from skep_lab.neighbours.all_services import AllNeighbours, all_neighbours
from skep_lab.neighbours.identity_and_images import PART, post, sign_in
from skep_lab.rabbitmq import PROGRAM
from tests.support.cloud_beside_real import configured

pytestmark = [
    *(pytest.mark.needs_part(part) for part in (PART, networks.PART, volumes.PART, PROGRAM, "postgres")),
    pytest.mark.timeout(1200),
    # Four services, a database and a broker at once: they would starve what runs beside them in `make test`.
    pytest.mark.sampled(0),
]

NEWEST = "2.104"
PATIENCE = 180.0
SERVERS = 4
"""For each service that dies."""

Json = dict[str, Any]


class Four:
    """A user of the cloud, who sees what Neutron and Cinder have."""

    def __init__(self, four: AllNeighbours, compute: ComputeSession, admin: httpx.AsyncClient, token: str) -> None:
        self.four = four
        self.compute = compute
        self.admin = admin
        self._client = httpx.AsyncClient(headers={"X-Auth-Token": token}, timeout=60.0, trust_env=False)
        self.network = ""
        self.volume = ""

    async def prepare(self) -> None:
        """Make a network, and a volume that stays the user's."""
        networks_at, volumes_at = f"{self.four.neutron.url}/v2.0", self.four.cinder.url
        made = await post(self._client, f"{networks_at}/networks", {"network": {"name": "own"}})
        self.network = made["network"]["id"]
        subnet = {"network_id": self.network, "ip_version": 4, "cidr": "10.9.0.0/24"}
        await post(self._client, f"{networks_at}/subnets", {"subnet": subnet})
        self.volume = (await post(self._client, f"{volumes_at}/volumes", {"volume": {"size": 1}}))["volume"]["id"]

        async def available() -> bool:
            return (await self.volumes())[self.volume] == ("available", 0)

        await eventually(available, "the volume is available", seconds=PATIENCE)

    async def volumes(self) -> dict[str, tuple[str, int]]:
        """Return status and number of attachments of the volumes, by their ids."""
        shown = (await self._client.get(f"{self.four.cinder.url}/volumes/detail")).json()["volumes"]
        return {one["id"]: (one["status"], len(one["attachments"])) for one in shown}

    async def ports(self) -> list[Json]:
        """Return the ports of servers."""
        # Where they are bound is shown to admins only.
        url = f"{self.four.neutron.url}/v2.0/ports?network_id={self.network}"
        found = (await self._client.get(url, headers=self.admin.headers)).json()
        return [port for port in found["ports"] if port["device_owner"].startswith("compute:")]

    async def create(self, **more: Any) -> str:
        """Ask for a server with an address that boots from a new volume."""
        root = {
            "source_type": "image",
            "uuid": self.four.first.image_id,
            "destination_type": "volume",
            "volume_size": 1,
            "boot_index": 0,
            "delete_on_termination": True,
        }
        others = more.pop("others", [])
        server = {
            "name": "one",
            "flavorRef": "1",
            "networks": [{"uuid": self.network}],
            "block_device_mapping_v2": [root, *others],
            **more,
        }
        answer = await self.compute.ask("POST", "/servers", {"server": server}, version=NEWEST)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    async def settles(self, uuid: str) -> Json:
        """Wait until a server is made or has failed."""

        async def is_so() -> Json | None:
            shown: Json = (await self.compute.ask("GET", f"/servers/{uuid}", version=NEWEST)).json()["server"]
            return shown if shown["status"] in {"ACTIVE", "ERROR"} and not shown["OS-EXT-STS:task_state"] else None

        settled = await eventually(is_so, "the server is made, or has failed", seconds=PATIENCE)
        assert settled is not None
        return settled

    async def delete(self, uuid: str) -> None:
        """Delete a server and wait until it is gone."""
        assert (await self.compute.ask("DELETE", f"/servers/{uuid}")).status_code == 204

        async def gone() -> bool:
            return (await self.compute.ask("GET", f"/servers/{uuid}")).status_code == 404

        await eventually(gone, "the server is gone", seconds=PATIENCE)

    async def only_what_is_the_users_is_left(self) -> None:
        """Wait until neither service has anything of a server, nor the audit anything to say."""

        async def is_so() -> bool:
            audit = (await self.admin.get("/admin/v1/audit")).json()["audit"]
            return (
                await self.ports() == []
                and await self.volumes() == {self.volume: ("available", 0)}
                and not audit["differences"]
                and not audit["unread"]
            )

        await eventually(is_so, "only what is the user's is left", seconds=PATIENCE)

    async def close(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def four_services(root: Path) -> AsyncIterator[Four]:
    port = free_port()
    async with all_neighbours(root / "neighbours", f"http://127.0.0.1:{port}/v2.1") as four:
        file = root / "skep.toml"
        configured(file, root, four.first, port)
        with file.open("a") as more:
            more.write(f"""
[networks]
kind = "neutron"
endpoint = "{four.neutron.url}"
[volumes]
kind = "cinder"
endpoint = "{four.cinder.url}"
""")
        async with (
            serving_cloud(load(file, {}).config, cells=1, hosts=2) as cloud,
            plain_client(cloud.api_url) as client,
            httpx.AsyncClient(base_url=four.first.auth_url, timeout=60.0, trust_env=False) as keystone,
            plain_client(cloud.api_url.removesuffix("/v2.1")) as admin,
        ):
            token = await sign_in(keystone, "demo", "demo")
            admin.headers["X-Auth-Token"] = await sign_in(keystone, "admin", "admin")
            both = Four(four, ComputeSession(client, token), admin, token)
            try:
                await both.prepare()
                yield both
            finally:
                await both.close()


async def test_what_dies_leaves_nothing_of_servers_in_the_services(tmp_path: Path) -> None:
    async with four_services(tmp_path) as both:
        extra = {"source_type": "volume", "uuid": both.volume, "destination_type": "volume", "boot_index": -1}
        first = await both.create(others=[extra])
        shown = await both.settles(first)
        assert shown["status"] == "ACTIVE", shown
        assert len(shown["os-extended-volumes:volumes_attached"]) == 2
        [[address]] = shown["addresses"].values()
        [port] = await both.ports()
        assert [one["ip_address"] for one in port["fixed_ips"]] == [address["addr"]]
        assert port["binding:host_id"] in {"cell1-host1", "cell1-host2"}
        assert (await both.volumes())[both.volume] == ("in-use", 1)

        servers = [first]
        for service in (both.four.neutron.service, both.four.cinder.service):
            asked = [await both.create() for _ in range(SERVERS)]
            service.kill()
            await both.compute.ask("DELETE", f"/servers/{asked[0]}")
            await service.start()
            settled = [await both.settles(uuid) for uuid in asked[1:]]
            assert {one["status"] for one in settled} <= {"ACTIVE", "ERROR"}
            servers += asked[1:]
        await asyncio.gather(*(both.delete(uuid) for uuid in servers))
        await both.only_what_is_the_users_is_left()
