"""Interfaces that hosts give to guests that are there, and take from them: servers get and lose them by what their host
does. Beside a Neutron, and with Skep's own network service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain import event_types
from skep.domain.actions import ACTIONS
from skep.domain.ids import InstanceUuid
from skep_lab.faulty_service import Mishap
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.functional.networks.test_attached_interfaces import attach, attached, detach, shown
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant
from tests.functional.test_event_types import listening
from tests.support.cloud_beside import cloud_beside

REFUSES = FailureRule(operation="attach_interface", error="InterfaceAttachFailed", message="no place is left")
KEEPS = FailureRule(operation="detach_interface", error="InterfaceInUse", message="the guest uses it", times=1)
HANGS = FailureRule(operation="attach_interface", hangs=True)

BOTH = pytest.mark.parametrize("service", ["embedded", "neutron"])


@asynccontextmanager
async def tenant(root: Path, service: str = "embedded", hosts: int = 1) -> AsyncIterator[Tenant]:
    """Run a cloud whose hosts do that on paper, with a user of it."""
    if service == "neutron":
        async with cloud_beside(root, networks=True, hosts=hosts, attaches_interfaces=True) as beside:
            yield BesideNeutron(beside, await beside.session(), await beside.image())
        return
    config = http_config(root)
    fake = msgspec.structs.replace(config.compute.fake, attaches_interfaces=True)
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, fake=fake))
    async with serving_cloud(config, cells=1, hosts=hosts) as cloud, signed_in(cloud, "demo", "demo") as compute:
        yield Tenant(cloud, compute)


def driver_of(demo: Tenant) -> FakeDriver:
    [driver] = demo.cloud.plane.drivers.values()
    assert isinstance(driver, FakeDriver)
    return driver


def got(demo: Tenant, server: Any) -> set[str]:
    """Return the ports of the interfaces that the guest of a server got while it was there."""
    return driver_of(demo).interfaces(InstanceUuid(server["id"]))


async def listed(demo: Tenant, server: Any) -> list[str]:
    return [str(one["port_id"]) for one in await shown(demo, server)]


async def has(demo: Tenant, server: Any, *ports: str) -> None:
    """The guest got these interfaces, and nothing is being done to its server."""

    async def so() -> bool:
        task = (await demo.server(server["id"]))["OS-EXT-STS:task_state"]
        return got(demo, server) == set(ports) and task is None

    await eventually(so, "the guest has its interfaces")


async def lost(demo: Tenant, server: Any, port: str) -> None:
    """The server has an interface no more, and its port is none of the server's."""

    async def so() -> bool:
        ports = [one["id"] for one in await demo.ports(server["id"])]
        return port not in ports and port not in await listed(demo, server)

    await eventually(so, "the interface has left the server")


async def record(demo: Tenant, server: Any) -> tuple[str, str, str | None]:
    """Return the request of the latest action of the server, what it was, and its result."""
    path = f"/servers/{server['id']}/os-instance-actions"
    [last, *_] = (await demo.compute.ask("GET", path, version=NEWEST)).json()["instanceActions"]
    told = (await demo.compute.ask("GET", f"{path}/{last['request_id']}", version=NEWEST)).json()["instanceAction"]
    [event] = told["events"]
    return last["request_id"], told["action"], event["result"]


@BOTH
async def test_a_guest_gets_interfaces_one_after_another_and_loses_them(tmp_path: Path, service: str) -> None:
    """What was made goes with the interface, what was brought is the user's again, and may be another server's."""
    with listening() as told:
        async with tenant(tmp_path, service) as demo:
            network = await demo.network("10.1.0.0/24")
            brought = await demo.networks("POST", "ports", {"port": {"network_id": network["id"]}})
            server = await demo.built([{"uuid": network["id"]}])
            [built] = await listed(demo, server)
            answer = await attach(demo, server, port_id=brought["id"])
            assert answer.status_code == 200, answer.text
            made = (await attached(demo, server, net_id=network["id"], tag="back"))["port_id"]
            await has(demo, server, brought["id"], made)
            assert await listed(demo, server) == [built, brought["id"], made]
            request = answer.headers["x-openstack-request-id"]
            await told.becomes(request, event_types.sent(ACTIONS["plug_interface"]), "plug_interface")

            for port in (made, brought["id"], built):
                assert await detach(demo, server, port) == 202
                await lost(demo, server, port)
            assert got(demo, server) == set()
            request, action, result = await record(demo, server)
            assert (action, result) == ("detach_interface", "Success")
            await told.becomes(request, event_types.sent(ACTIONS["unplug_interface"]), "unplug_interface")
            assert [one["device_id"] for one in await demo.networks("GET", f"ports?id={brought['id']}")] == [""]
            assert await demo.networks("GET", f"ports?id={made}") == []
            assert await detach(demo, server, made) == 404
            other = await demo.built([{"port": brought["id"]}], name="two")
            assert await listed(demo, other) == [brought["id"]]
            for one in (server, other):
                await demo.delete(one["id"])


@BOTH
async def test_an_interface_that_the_guest_cannot_get_leaves_no_port(tmp_path: Path, service: str) -> None:
    async with tenant(tmp_path, service) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        before = await listed(demo, server)
        driver_of(demo).fail((REFUSES,))
        vif = await attached(demo, server, net_id=network["id"])
        await lost(demo, server, vif["port_id"])
        assert (await record(demo, server))[1:] == ("attach_interface", "Error")
        assert await listed(demo, server) == before
        assert (await demo.server(server["id"]))["status"] == "ACTIVE"
        driver_of(demo).fail(())
        vif = await attached(demo, server, net_id=network["id"])
        await has(demo, server, vif["port_id"])


async def test_an_interface_of_which_the_guest_does_not_let_go_stays(tmp_path: Path) -> None:
    """It may be detached again."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        port = (await attached(demo, server, net_id=network["id"]))["port_id"]
        await has(demo, server, port)
        driver_of(demo).fail((KEEPS,))
        assert await detach(demo, server, port) == 202

        async def stays() -> bool:
            return (await record(demo, server))[1:] == ("detach_interface", "Error")

        await eventually(stays, "the host could not take it")
        await has(demo, server, port)
        assert port in await listed(demo, server)
        assert await detach(demo, server, port) == 202
        await lost(demo, server, port)


async def test_a_network_service_that_is_away_has_the_port_released_later(tmp_path: Path) -> None:
    """Its users see the interface no more, and get it not back by what the service says meanwhile."""
    async with tenant(tmp_path, "neutron") as demo:
        assert isinstance(demo, BesideNeutron)
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        port = (await attached(demo, server, net_id=network["id"]))["port_id"]
        await has(demo, server, port)
        await demo.neutron.fail(Mishap.REFUSES)
        assert await detach(demo, server, port) == 202

        async def gone() -> bool:
            return port not in await listed(demo, server)

        await eventually(gone, "the interface is seen no more")
        assert port in [one["id"] for one in await demo.ports(server["id"])]
        await demo.neutron.heal()
        await lost(demo, server, port)
        await demo.no_differences()


async def test_an_attach_that_hangs_goes_with_its_server(tmp_path: Path) -> None:
    """Meanwhile the server shows that, and no other interface comes."""
    async with tenant(tmp_path) as demo:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        driver_of(demo).fail((HANGS,))
        await attached(demo, server, net_id=network["id"])
        task = (await demo.server(server["id"]))["OS-EXT-STS:task_state"]
        assert task == "attaching_interface"
        assert (await demo.compute.ask("DELETE", f"/servers/{server['id']}")).status_code == 204
        driver_of(demo).release()
        await demo.delete(server["id"])


async def test_a_cloud_that_ends_while_a_guest_gets_an_interface(tmp_path: Path) -> None:
    """Its host begins again, and the guest has the interface once."""
    async with tenant(tmp_path, "neutron") as demo:
        assert isinstance(demo, BesideNeutron)
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        driver_of(demo).fail((HANGS,))
        port = (await attached(demo, server, net_id=network["id"]))["port_id"]
        await demo.restart()
        await has(demo, server, port)
        await demo.no_differences()
        await demo.delete(server["id"])


async def test_a_guest_loses_the_interface_of_a_port_that_neutron_has_deleted(tmp_path: Path) -> None:
    """Once Neutron tells of it; what it tells of others changes nothing."""
    async with tenant(tmp_path, "neutron") as demo:
        assert isinstance(demo, BesideNeutron)
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        port = (await attached(demo, server, net_id=network["id"]))["port_id"]
        await has(demo, server, port)
        admin = await demo.beside.session("admin", "admin")
        url = f"{demo.networks_url}/v2.0/ports/{port}"
        deleted = await demo.compute.client.delete(url, headers={"X-Auth-Token": demo.compute.token})
        assert deleted.status_code == 204, deleted.text
        for tag in (server["id"], port):
            event = {"name": "network-vif-deleted", "server_uuid": server["id"], "tag": tag}
            told = await admin.ask("POST", "/os-server-external-events", {"events": [event]}, version=NEWEST)
            assert told.status_code == 200, told.text
        await has(demo, server)
        await lost(demo, server, port)
        assert (await record(demo, server))[1:] == ("detach_interface", "Success")
        assert len(await listed(demo, server)) == 1
        await demo.no_differences()
