"""Builds that wait until Neutron has wired their ports: told by an event, by a look, in vain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.database.api import port_holders
from skep.database.cell import attempts
from skep.domain.ids import InstanceUuid
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.support.cloud_beside import cloud_beside


class Wires:
    """What a Neutron says of the wires of its ports; its own word is that all work."""

    def __init__(self, demo: BesideNeutron) -> None:
        self._demo = demo
        self.told = 0
        """Answers about ports that were changed."""
        demo.neutron.retold = self._retold
        self.status = "DOWN"

    def _retold(self, _method: str, path: str, piece: bytes) -> bytes:
        before, after = b'"status":"ACTIVE"', f'"status":"{self.status}"'.encode()
        if not path.startswith("/v2.0/ports") or before not in piece or self.status == "ACTIVE":
            return piece
        self.told += 1
        return piece.replace(before, after.ljust(len(before)))

    async def event(self, server: str) -> None:
        """Wire the ports of a server, and say so as Neutron does."""
        self.status = "ACTIVE"
        admin = await self._demo.beside.session("admin", "admin")
        [port] = await self._demo.ports(server)
        event = {"name": "network-vif-plugged", "server_uuid": server, "tag": port["id"], "status": "completed"}
        answer = await admin.ask("POST", "/os-server-external-events", {"events": [event]})
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def unwired(
    root: Path,
    *failures: FakeFailure,
    hosts: int = 1,
    of_hosts: Mapping[str, Any] | None = None,
    plugs: bool = True,
) -> AsyncIterator[tuple[BesideNeutron, Wires]]:
    """Run a cloud beside a Neutron that has no agent which wires anything."""
    async with cloud_beside(root, *failures, networks=True, hosts=hosts, of_hosts=of_hosts, plugs=plugs) as beside:
        demo = BesideNeutron(beside, await beside.session(), await beside.image())
        yield demo, Wires(demo)


async def waiting(demo: BesideNeutron) -> str:
    """Ask for a server; return its id once it surely waits for its port."""
    network = await demo.network("10.1.0.0/24")
    answer = await demo.create([{"uuid": network["id"]}])
    assert answer.status_code == 202, answer.text
    server = str(answer.json()["server"]["id"])
    await passed_by(demo, server)
    return server


async def passed_by(demo: BesideNeutron, server: str) -> None:
    """Have two servers without ports built, one after the other, and a server that was asked for before them not."""
    for _ in range(2):
        assert (await demo.built("none"))["status"] == "ACTIVE"
    assert (await demo.server(server))["status"] == "BUILD"
    assert server not in await guests(demo)


async def guests(demo: BesideNeutron) -> list[str]:
    """Return the servers whose guests are on some host."""
    return [guest.instance for driver in demo.cloud.plane.drivers.values() for guest in await driver.guests()]


async def states(demo: BesideNeutron, server: str) -> list[str]:
    """Return what the compute API says of the ports of a server."""
    listed = (await demo.compute.ask("GET", f"/servers/{server}/os-interface")).json()
    return [one["port_state"] for one in listed["interfaceAttachments"]]


async def test_a_guest_is_made_once_neutron_says_that_its_port_is_wired(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, wires):
        server = await waiting(demo)
        assert await states(demo, server) == ["DOWN"]
        await wires.event(server)
        assert (await demo.settled(server))["status"] == "ACTIVE"
        assert wires.told
        assert await states(demo, server) == ["ACTIVE"]
        await demo.no_differences()


async def test_a_lost_event_is_made_up_for_by_a_look(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, wires):
        server = await waiting(demo)
        wires.status = "ACTIVE"
        now, held = demo.cloud.clock.now(), [InstanceUuid(server)]
        await demo.cloud.plane.databases.api.write(lambda connection: port_holders.look_soon(connection, held, now))
        assert (await demo.settled(server))["status"] == "ACTIVE"


async def test_a_build_that_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, wires):
        server = await waiting(demo)
        await demo.restart()
        await passed_by(demo, server)
        await wires.event(server)
        assert (await demo.settled(server))["status"] == "ACTIVE"
        await demo.no_differences()


async def test_one_that_waits_can_be_deleted(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, _wires):
        server = await waiting(demo)
        await demo.delete(server)
        await demo.no_differences()


async def test_a_build_whose_ports_are_not_wired_in_time_fails(tmp_path: Path) -> None:
    """No other host is tried, and the owner reads why."""
    async with unwired(tmp_path, hosts=2, of_hosts={"vif_plugging_timeout": 0.2}) as (demo, _wires):
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        [port] = await demo.ports(server["id"])
        assert server["status"] == "ERROR"
        assert f"has not wired port {port['id']} within 0.2 seconds" in server["fault"]["message"]
        cell = demo.cloud.plane.databases.cells["cell1"]
        assert len(await cell.read(partial(attempts.history, instance=InstanceUuid(server["id"])))) == 1
        assert await guests(demo) == []
        await demo.delete(server["id"])
        await demo.no_differences()


async def test_a_port_that_cannot_be_wired_is_not_waited_for(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, wires):
        wires.status = "ERROR"
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        assert server["status"] == "ERROR"
        assert "cannot wire port" in server["fault"]["message"]


async def test_where_it_is_not_fatal_the_guest_is_made_all_the_same(tmp_path: Path) -> None:
    settings = {"vif_plugging_timeout": 0.2, "vif_plugging_is_fatal": False}
    async with unwired(tmp_path, of_hosts=settings) as (demo, _wires):
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        assert server["status"] == "ACTIVE"
        assert await states(demo, server["id"]) == ["DOWN"]


async def test_without_a_timeout_nothing_waits(tmp_path: Path) -> None:
    async with unwired(tmp_path, of_hosts={"vif_plugging_timeout": 0.0}) as (demo, _wires):
        network = await demo.network("10.1.0.0/24")
        assert (await demo.built([{"uuid": network["id"]}]))["status"] == "ACTIVE"


async def test_hosts_that_make_no_interfaces_do_not_wait(tmp_path: Path) -> None:
    """Nothing would ever be wired for them."""
    async with unwired(tmp_path, plugs=False) as (demo, _wires):
        network = await demo.network("10.1.0.0/24")
        assert (await demo.built([{"uuid": network["id"]}]))["status"] == "ACTIVE"


async def test_a_port_that_its_owner_has_put_down_is_not_waited_for(tmp_path: Path) -> None:
    async with unwired(tmp_path) as (demo, _wires):
        network = await demo.network("10.1.0.0/24")
        port = {"network_id": network["id"], "admin_state_up": False}
        brought = await demo.networks("POST", "ports", {"port": port})
        assert (await demo.built([{"port": brought["id"]}]))["status"] == "ACTIVE"


async def test_on_another_host_the_wires_of_the_first_do_not_count(tmp_path: Path) -> None:
    """A build that goes on waits until its ports are bound to the host that has it now."""
    fails = FakeFailure(operation="prepare", host="*-host1", server="one-*")
    async with unwired(tmp_path, fails, hosts=2) as (demo, wires):
        wires.status = "ACTIVE"
        network = await demo.network("10.1.0.0/24")
        await demo.neutron.fail(Mishap.ERROR, lambda method, _path: method == "PUT")
        answer = await demo.create([{"uuid": network["id"]}], min_count=2, return_reservation_id=True)
        assert answer.status_code == 202, answer.text

        async def one_of_them() -> list[str] | None:
            listed = (await demo.compute.ask("GET", "/servers/detail")).json()["servers"]
            assert len(listed) == 2
            left = [str(one["id"]) for one in listed if one["status"] == "BUILD"]
            return left if len(left) == 1 else None

        [server] = await eventually(one_of_them, "the other host has built one of them") or []
        await demo.neutron.meeting.wait()
        await passed_by(demo, server)
        await demo.neutron.heal()
        assert (await demo.settled(server))["status"] == "ACTIVE"
        admin = await demo.beside.session("admin", "admin")
        url, headers = f"{demo.networks_url}/v2.0/ports?device_id={server}", {"X-Auth-Token": admin.token}
        [port] = (await admin.client.get(url, headers=headers)).json()["ports"]
        assert port["binding:host_id"] == "cell1-host2"
        await demo.no_differences()
