"""A cloud beside services that are away for long: who needs them is told at once, and they are left in peace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.loopback import plain_client
from skep.database.api import port_holders
from skep.domain.ids import InstanceUuid
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_faulty_keystone import unavailable
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.networks.test_servers_with_addresses import addresses
from tests.support.cloud_beside import CloudBeside, cloud_beside

LONG = 3600.0
"""Seconds between two probes in clouds whose services stay away for the whole test."""


async def away(beside: CloudBeside, service: str) -> bool:
    """Tell whether the metrics of the cloud's process say that a service is away."""
    async with plain_client(beside.cloud.api_url.removesuffix("/v2.1")) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    [value] = [line.split()[-1] for line in lines if line.startswith(f'skep_neighbour_away{{service="{service}"}}')]
    return float(value) == 1


@pytest.mark.parametrize("fault", [Mishap.SILENT, Mishap.BUSY, Mishap.HTML], ids=lambda fault: fault.name)
async def test_requests_of_users_fail_at_once_and_passes_leave_it_in_peace(tmp_path: Path, fault: Mishap) -> None:
    async with cloud_beside(tmp_path, networks=True, breaker_failures=2, breaker_seconds=LONG) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        wanted = [{"uuid": network["id"]}]
        await demo.neutron.fail(fault)
        for _ in range(2):
            unavailable(await demo.create(wanted), "the network service")

        async def is_away() -> bool:
            return await away(beside, "network")

        await eventually(is_away, "Neutron counts as away")
        met = list(demo.neutron.met)
        for answer in await asyncio.gather(*(demo.create(wanted) for _ in range(10))):
            unavailable(answer, "the network service does not answer")
            assert int(answer.headers["Retry-After"]) > 1
        # A pass finds a server that it has to look at, and does not ask either.
        now, held = demo.cloud.clock.now(), [InstanceUuid(server["id"])]
        await demo.cloud.plane.databases.api.write(lambda connection: port_holders.look_soon(connection, held, now))
        answer = await demo.compute.ask("DELETE", f"/servers/{server['id']}")
        assert answer.status_code == 204, answer.text

        async def gone() -> bool:
            return not (await demo.compute.ask("GET", "/servers")).json()["servers"]

        await eventually(gone, "the server is gone although its port cannot be released")
        assert demo.neutron.met == met
        assert not await away(beside, "identity")
        assert not await away(beside, "volume")


async def test_a_build_goes_on_when_the_service_is_back(tmp_path: Path) -> None:
    """A port whose making had no answer is found, although nothing was asked for a while: there is one."""
    async with cloud_beside(tmp_path, networks=True, breaker_failures=2, breaker_seconds=0.2) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        network = await demo.network("10.1.0.0/24")

        def meets(method: str, path: str) -> bool:
            """No port that was made is found again."""
            return path.startswith("/v2.0/ports") and (method == "POST" or bool(demo.neutron.met))

        await demo.neutron.fail(Mishap.LOST, meets)
        answer = await demo.create([{"uuid": network["id"]}])
        assert answer.status_code == 202, answer.text
        uuid = answer.json()["server"]["id"]

        async def is_away() -> bool:
            return await away(beside, "network")

        await eventually(is_away, "Neutron counts as away")
        assert (await demo.server(uuid))["status"] == "BUILD"
        await demo.neutron.heal()
        server = await demo.settled(uuid)
        assert server["status"] == "ACTIVE", server
        [port] = await demo.ports(uuid)
        assert addresses(server)["mine"] == [port["fixed_ips"][0]["ip_address"]]
        assert not await away(beside, "network")
        await demo.no_differences()


async def test_volumes(tmp_path: Path) -> None:
    async with cloud_beside(tmp_path, volumes=True, breaker_failures=2, breaker_seconds=LONG) as beside:
        session, image = await beside.session(), await beside.image()
        uuid = await beside.request(session, image)
        await beside.calm(session, uuid, "ACTIVE")
        await beside.cinder.fail(Mishap.SILENT)
        for _ in range(2):
            unavailable(await session.ask("GET", "/os-volumes"), "the volume service")
        met = len(beside.cinder.met)
        for answer in await asyncio.gather(*(session.ask("GET", "/os-volumes") for _ in range(10))):
            unavailable(answer, "the volume service does not answer")
        attachment = {"volumeAttachment": {"volumeId": "11111111-1111-4111-8111-111111111111"}}
        unavailable(
            await session.ask("POST", f"/servers/{uuid}/os-volume_attachments", attachment), "the volume service"
        )
        assert len(beside.cinder.met) == met
        assert (await session.ask("GET", f"/servers/{uuid}")).status_code == 200, "who needs no volume goes on"
