"""Many who want one port or one volume of services beside the cloud: nothing is left of those that do not get it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.contracts.eventually import eventually
from skep_lab.cinder_twin.store import SHARED_TYPE
from tests.functional.neighbours.test_cinder import HOST, NEWEST, BesideCinder, brought
from tests.functional.neighbours.test_cinder_attachments import attach, detach, has, is_attached
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.support.cloud_beside import cloud_beside

pytestmark = pytest.mark.timeout(300)

MANY = 10
OVER = ("ACTIVE", "ERROR")


class BesideBoth(BesideCinder):
    """A user of a cloud beside a network and a volume service."""

    neutron: BesideNeutron

    async def settled(self, servers: list[str]) -> list[dict[str, Any]]:
        """Wait until servers are built, or will not be."""

        async def over() -> bool:
            return all([(await self.server(one))["status"] in OVER for one in servers])

        await eventually(over, "each server is built, or will not be")
        return [await self.server(one) for one in servers]

    async def quota(self) -> None:
        """Let the user have as many servers as a race takes."""
        admin = await self.beside.session("admin", "admin")
        wanted = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
        answer = await admin.ask("PUT", f"/os-quota-sets/{self.project}", wanted)
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def beside_both(root: Path) -> AsyncIterator[BesideBoth]:
    async with cloud_beside(root, volumes=True, networks=True) as beside:
        demo = BesideBoth(beside, await beside.session(), await beside.image())
        demo.neutron = BesideNeutron(beside, demo.compute, demo.image)
        await demo.quota()
        yield demo


def no_failure(answers: list[httpx.Response]) -> list[int]:
    """See that the cloud answered each; return the statuses."""
    assert all(one.status_code < 500 for one in answers), [one.text for one in answers]
    return [one.status_code for one in answers]


async def test_one_volume_for_many_builds(tmp_path: Path) -> None:
    """One gets it; the others say why they are in ERROR."""
    async with beside_both(tmp_path) as demo:
        volume = demo.volume()
        answers = await asyncio.gather(*(demo.asked(brought(volume)) for _ in range(MANY)))
        assert set(no_failure(answers)) <= {202, 400}
        servers = await demo.settled([one.json()["server"]["id"] for one in answers if one.status_code == 202])
        assert Counter(one["status"] for one in servers) == {"ACTIVE": 1, "ERROR": len(servers) - 1}
        [winner] = [one["id"] for one in servers if one["status"] == "ACTIVE"]
        await is_attached(demo, winner, volume)
        assert len(demo.store.attachments) == 1
        assert all("status must be available" in one["fault"]["message"] for one in servers if one["id"] != winner)
        for one in servers:
            await demo.delete(one["id"])
        await demo.left(volume)


async def test_a_volume_of_many_servers_is_theirs_at_once(tmp_path: Path) -> None:
    """Cinder refuses a second one while the first is on its way, or goes; who asks again gets it, and loses it."""
    async with beside_both(tmp_path) as demo:
        servers = [await demo.create() for _ in range(MANY)]
        await demo.settled(servers)
        volume = demo.volume(volume_type=SHARED_TYPE)
        without = list(servers)
        for _ in range(MANY):
            answers = await asyncio.gather(*(attach(demo, one, volume) for one in without))
            statuses = no_failure(answers)
            assert set(statuses) <= {202, 400}
            assert 202 in statuses, [one.text for one in answers]
            for one, status in zip(list(without), statuses, strict=True):
                assert await has(demo, one) == ([volume] if status == 202 else [])
                if status == 202:
                    await is_attached(demo, one, volume)
                    without.remove(one)
            if not without:
                break
        assert {one: demo.attached(one) for one in servers} == {one: {volume: [("attached", HOST)]} for one in servers}
        having = list(servers)
        for _ in range(MANY):
            statuses = await asyncio.gather(*(detach(demo, one, volume) for one in having))
            assert set(statuses) <= {202, 400}
            assert 202 in statuses
            having = [one for one, status in zip(having, statuses, strict=True) if status != 202]
            if not having:
                break
        assert having == []
        await demo.left(volume)


async def test_one_port_for_many_builds_and_servers(tmp_path: Path) -> None:
    """It is bound once, for the server that has it."""
    async with beside_both(tmp_path) as demo:
        network = await demo.neutron.network("10.1.0.0/24")
        servers = [await demo.create() for _ in range(MANY // 2)]
        await demo.settled(servers)
        port = await demo.neutron.networks("POST", "ports", {"port": {"network_id": network["id"]}})
        wanted: list[Any] = [demo.asked(networks=[{"port": port["id"]}]) for _ in range(MANY // 2)]
        body = {"interfaceAttachment": {"port_id": port["id"]}}
        wanted += [demo.compute.ask("POST", f"/servers/{one}/os-interface", body, version=NEWEST) for one in servers]
        answers = await asyncio.gather(*wanted)
        assert set(no_failure(answers)) <= {200, 202, 400, 409}
        made = [one.json()["server"]["id"] for one in answers if one.status_code == 202]
        everyone = await demo.settled([*servers, *made])
        [winner] = [one["id"] for one in everyone if any(one["addresses"].values())]
        shown = await demo.neutron.networks("GET", f"ports/{port['id']}")
        assert shown["device_id"] == winner
        assert {one["status"] for one in everyone if one["id"] in servers} == {"ACTIVE"}
        assert {one["id"] for one in everyone if one["id"] in made and one["status"] == "ACTIVE"} <= {winner}
        for one in everyone:
            await demo.delete(one["id"])

        async def free() -> bool:
            [left] = await demo.neutron.networks("GET", "ports")
            return (left["id"], left["device_id"]) == (port["id"], "")

        await eventually(free, "the port is its user's alone")
        await demo.neutron.no_differences()
