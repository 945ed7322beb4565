"""Servers that want what only one can have, and servers whose ports are made while somebody else acts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.sections import QuotaSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.resources import VCPU
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry.steps import CrashPoint
from skep.transport.host_states import host_states
from tests.functional.networks.test_servers_with_addresses import Tenant, addresses, tenant

NO_ADDRESS = "No more IP addresses available"
POINTS = [
    (step, when)
    for step in ("take", "select", "ports", "stage", "map", "settle", "may_build", "may_spawn", "built")
    for when in ("before", "after")
]


async def used(cloud: AllInOneCloud) -> int:
    """Return how many processors are used or claimed."""
    states = await host_states(cloud.plane.transport)
    claimed = sum(claim.resources.get(VCPU, 0) for host in states for claim in host.claims)
    return claimed + sum(host.usage.used.get(VCPU, 0) for host in states)


async def uses(cloud: AllInOneCloud, wanted: int) -> None:
    """Wait until so many processors are used."""

    async def as_many() -> bool:
        return await used(cloud) == wanted

    await eventually(as_many, f"{wanted} processors are used")


async def ports(demo: Tenant) -> list[Any]:
    """Return the ports of the project but for those of its routers."""
    found = await demo.networks("GET", "ports")
    return [one for one in found if not one["device_owner"].startswith("network:")]


async def events_of(demo: Tenant, server: str, last: str) -> list[Any]:
    """Return what the event log tells of a server, once it tells `last`."""
    url = f"{demo.cloud.api_url.removesuffix('/v2.1')}/v1/events"
    seen: list[Any] = []

    async def told() -> bool:
        asked = {"server": server}
        answer = await demo.compute.client.get(url, params=asked, headers={"X-Auth-Token": demo.compute.token})
        seen[:] = answer.json()["events"]
        return any(one["type"] == last for one in seen)

    await eventually(told, f"{last} is told")
    return seen


async def stay(demo: Tenant, *wanted: str) -> None:
    """Wait until only these ports are there, and no server has them."""

    async def as_wanted() -> bool:
        found = await ports(demo)
        return [(one["id"], one["device_id"], one["status"]) for one in found] == [(one, "", "DOWN") for one in wanted]

    await eventually(as_wanted, f"the ports {wanted} stay, free")


def once(demo: Tenant, point: tuple[str, str], act: Callable[[], Awaitable[object]]) -> list[object]:
    """Act once, when a build stands at a point; return what fills with what came of it."""
    acted: list[object] = []
    begun: list[CrashPoint] = []

    async def there(at: CrashPoint) -> None:
        if not begun and (at.step, at.when) == point:
            begun.append(at)
            acted.append(await act())

    demo.cloud.plane.steps.crash_hook = there
    return acted


@pytest.mark.timeout(300)
async def test_two_hundred_servers_on_a_subnet_with_fifty_addresses(tmp_path: Path) -> None:
    config = http_config(tmp_path, quota=QuotaSettings(instances=-1, cores=-1, ram=-1))
    fake = msgspec.structs.replace(config.compute.fake, vcpus=128, memory_mb=262_144)
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, fake=fake))
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud, "demo", "demo") as compute:
        demo = Tenant(cloud, compute)
        network = await demo.networks("POST", "networks", {"network": {"name": "small"}})
        pool = [{"start": "10.0.0.10", "end": "10.0.0.59"}]
        subnet = {"network_id": network["id"], "ip_version": 4, "cidr": "10.0.0.0/24", "allocation_pools": pool}
        await demo.networks("POST", "subnets", {"subnet": subnet})
        several = [demo.create([{"uuid": network["id"]}], min_count=count, max_count=count) for count in (60, 40, 40)]
        single = [demo.create([{"uuid": network["id"]}]) for _ in range(60)]
        answers = await asyncio.gather(*several, *single)
        assert {one.status_code for one in answers} == {202}, [one.text for one in answers if one.status_code != 202]

        async def servers() -> list[Any]:
            answer = await demo.compute.ask("GET", "/servers/detail?limit=1000", version="2.96")
            assert answer.status_code == 200, answer.text
            found: list[Any] = answer.json()["servers"]
            return found

        async def over() -> bool:
            return {one["status"] for one in await servers()} <= {"ACTIVE", "ERROR"}

        await eventually(over, "every server is built, or will not be", seconds=120)
        found = await servers()
        assert Counter(one["status"] for one in found) == {"ACTIVE": 50, "ERROR": 150}
        given = [address for one in found if one["status"] == "ACTIVE" for address in addresses(one)["small"]]
        assert sorted(given) == sorted(f"10.0.0.{last}" for last in range(10, 60))
        assert {NO_ADDRESS in one["fault"]["message"] for one in found if one["status"] == "ERROR"} == {True}
        assert not any(one["addresses"] for one in found if one["status"] == "ERROR")
        assert len(await ports(demo)) == 50
        await uses(cloud, 50)
        deleted = await asyncio.gather(*(demo.compute.ask("DELETE", f"/servers/{one['id']}") for one in found))
        assert {one.status_code for one in deleted} == {204}

        async def gone() -> bool:
            return await servers() == []

        await eventually(gone, "every server is gone", seconds=120)
        await stay(demo)
        await uses(cloud, 0)


async def test_one_port_for_two_servers(tmp_path: Path) -> None:
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.0.0.0/24")
        port = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        answers = await asyncio.gather(*(demo.create([{"port": port["id"]}]) for _ in range(4)))
        assert {one.status_code for one in answers} <= {202, 409}
        made = [one.json()["server"]["id"] for one in answers if one.status_code == 202]
        servers = [await demo.settled(uuid) for uuid in made]
        [winner] = [one for one in servers if one["status"] == "ACTIVE"]
        for one in servers:
            if one is not winner:
                assert "still in use" in one["fault"]["message"]
                assert one["addresses"] == {}
        assert (await demo.networks("GET", f"ports/{port['id']}"))["device_id"] == winner["id"]
        for uuid in made:
            await demo.delete(uuid)
        await stay(demo, port["id"])
        await uses(demo.cloud, 0)


async def test_a_port_that_is_deleted_before_its_server_is_built(tmp_path: Path) -> None:
    """The server will not be built, and what it would have had beside that port is not made."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.0.0.0/24")
        port = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        acted = once(demo, ("ports", "before"), lambda: demo.networks("DELETE", f"ports/{port['id']}"))
        server = await demo.built([{"uuid": network["id"]}, {"port": port["id"]}])
        assert len(acted) == 1
        assert server["status"] == "ERROR"
        reason = f"Port {port['id']} could not be found"
        assert reason in server["fault"]["message"]
        told = await events_of(demo, server["id"], "server.error")
        assert [one["type"] for one in told] == ["server.requested", "server.error"]
        assert reason in told[-1]["data"]["reason"]
        assert await ports(demo) == []
        await uses(demo.cloud, 0)
        await demo.delete(server["id"])


async def test_a_port_that_is_deleted_while_its_server_is_built(tmp_path: Path) -> None:
    """The server is there, and soon shows no address."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.0.0.0/24")
        port = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        acted = once(demo, ("ports", "after"), lambda: demo.networks("DELETE", f"ports/{port['id']}"))
        server = await demo.built([{"port": port["id"]}])
        assert (len(acted), server["status"]) == (1, "ACTIVE")

        async def shows_none() -> bool:
            return addresses(await demo.server(server["id"])) == {}

        await eventually(shows_none, "no address is shown")
        await demo.delete(server["id"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("point", POINTS, ids="-".join)
async def test_a_server_that_is_deleted_while_it_is_built(tmp_path: Path, point: tuple[str, str]) -> None:
    """Whatever was done for it by then: no port is left, and a user's port is free again."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.0.0.0/24")
        port = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})

        async def delete() -> int:
            [server] = (await demo.compute.ask("GET", "/servers")).json()["servers"]
            return (await demo.compute.ask("DELETE", f"/servers/{server['id']}")).status_code

        acted = once(demo, point, delete)
        answer = await demo.create([{"uuid": network["id"]}, {"port": port["id"]}])
        uuid = answer.json()["server"]["id"]

        async def gone() -> bool:
            return bool(acted) and (await demo.compute.ask("GET", f"/servers/{uuid}")).status_code == 404

        await eventually(gone, "the server is gone")
        assert acted == [204]
        await uses(demo.cloud, 0)
        await stay(demo, port["id"])
        again = await demo.built([{"port": port["id"]}])
        assert again["status"] == "ACTIVE"
