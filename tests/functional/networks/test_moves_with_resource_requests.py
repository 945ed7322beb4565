"""A server whose port asks for resources of its host is moved: the target serves the port, and Neutron is told so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skep.config.compute import FakeFailure
from skep.config.providers import HostProvider
from skep.contracts.eventually import eventually
from skep_lab.faulty_service import Mishap
from tests.functional.networks.test_bindings_of_live_migrations import NEVER_DONE, Mover, refusal
from tests.functional.networks.test_resource_requests import FIRST, SECOND, Asking, asking
from tests.functional.networks.test_servers_with_addresses import NEWEST
from tests.support.resource_requests import EGRESS, PHYSICAL, flat, provider_uuid, providers

BOTH = (*providers(FIRST), *providers(SECOND))
MOST = 600
"""Of a provider's 1000: two servers do not share one."""
COLD = [{"migrate": None}, {"resize": {"flavorRef": "2"}}]


def bridge(host: str) -> str:
    """Return the UUID of the provider that serves ports on a host."""
    return provider_uuid(host, "bridge")


def other(host: str) -> str:
    """Return the other host."""
    return SECOND if host == FIRST else FIRST


def binds(method: str, path: str) -> bool:
    """Tell whether a port is changed."""
    return method == "PUT" and "/ports/" in path


class Moved(Mover):
    """A server with one port that asks for most of what a provider has."""

    def __init__(self, demo: Asking, server: Any, port: str) -> None:
        super().__init__(demo, demo.admin, {"id": server["id"], "ports": [port]})
        self.asking = demo
        self.port = port

    async def restart(self) -> None:
        """End the cloud in the middle, and begin it anew."""
        await self.asking.restart()
        self.admin = self.asking.admin = await self.asking.beside.session("admin", "admin")

    async def act(self, action: dict[str, Any]) -> None:
        """Ask for something."""
        answer = await self.asking.act(self.uuid, action)
        assert answer.status_code in (202, 204), answer.text

    async def calm(self, status: str) -> None:
        """Wait until nothing is done to it."""
        await self.asking.beside.calm(self.admin, self.uuid, status)

    async def is_served_on(self, host: str) -> None:
        """The server is there, and Neutron is told of what serves its port there."""
        assert await self.host() == host
        await self.asking.is_bound(self.port, host, bridge(host))

    async def told(self) -> dict[str, tuple[str, Any]]:
        """Return of each binding of the port its status, and what Neutron is told of providers."""
        url = f"{self.demo.networks_url}/v2.0/ports/{self.port}/bindings"
        answer = await self.admin.client.get(url, headers={"X-Auth-Token": self.admin.token})
        assert answer.status_code == 200, answer.text
        return {one["host"]: (one["status"], one["profile"].get("allocation")) for one in answer.json()["bindings"]}

    async def another(self) -> Any:
        """Ask for one more server that wants as much; return it once it is settled."""
        network = await self.demo.networks("GET", "networks")
        port = await self.asking.port(network[0], resource_request=flat(MOST))
        return await self.demo.built([{"port": port}], name="another")


@asynccontextmanager
async def moved(
    root: Path, *failures: FakeFailure, of_hosts: tuple[HostProvider, ...] = BOTH, **said: Any
) -> AsyncIterator[Moved]:
    async with asking(root, *failures, of_hosts=of_hosts, **said) as demo:
        port = await demo.port(await demo.network("10.1.0.0/24"), resource_request=flat(MOST))
        server = await demo.built([{"port": port}])
        assert server["status"] == "ACTIVE", server
        yield Moved(demo, server, port)


async def is_had(mover: Moved) -> None:
    """Another server finds a provider again: what was held besides is given back."""

    async def had() -> bool:
        found = await mover.another()
        return bool(found["status"] == "ACTIVE")

    await eventually(had, "another server is served")


@pytest.mark.parametrize("action", COLD, ids=lambda one: next(iter(one)))
async def test_the_target_serves_the_port(tmp_path: Path, action: dict[str, Any]) -> None:
    """Until the move is confirmed both hosts hold what the port asks for: neither gives it to another server."""
    async with moved(tmp_path) as mover:
        source = await mover.host()
        await mover.is_served_on(source)
        await mover.act(action)
        await mover.calm("VERIFY_RESIZE")
        await mover.is_served_on(other(source))
        refused = await mover.another()
        assert refused["status"] == "ERROR"
        assert EGRESS in refused["fault"]["message"], refused["fault"]
        await mover.act({"confirmResize": None})
        await mover.calm("ACTIVE")
        await mover.is_served_on(other(source))
        await is_had(mover)
        await mover.asking.no_differences()


@pytest.mark.parametrize("action", COLD, ids=lambda one: next(iter(one)))
async def test_a_revert_has_the_source_serve_it_again(tmp_path: Path, action: dict[str, Any]) -> None:
    async with moved(tmp_path) as mover:
        source = await mover.host()
        await mover.act(action)
        await mover.calm("VERIFY_RESIZE")
        await mover.is_served_on(other(source))
        await mover.act({"revertResize": None})
        await mover.calm("ACTIVE")
        await mover.is_served_on(source)
        await is_had(mover)
        await mover.asking.no_differences()


@pytest.mark.parametrize("action", [*COLD, {"os-migrateLive": {"host": None, "block_migration": "auto"}}])
async def test_no_host_without_such_a_provider_is_a_target(tmp_path: Path, action: dict[str, Any]) -> None:
    """The server stays as it was."""
    async with moved(tmp_path, of_hosts=providers(SECOND)) as mover:
        await mover.act(action)

        async def ended() -> Any:
            answer = await mover.admin.ask("GET", f"/servers/{mover.uuid}/os-instance-actions", version=NEWEST)
            last = answer.json()["instanceActions"][0]
            return last if last["action"] != "create" and last["message"] else None

        assert EGRESS in (await eventually(ended, "no host was found"))["message"]
        await mover.calm("ACTIVE")
        await mover.is_served_on(SECOND)
        await mover.asking.no_differences()


@pytest.mark.parametrize("operation", ["receive", "take_up"])
async def test_a_target_that_fails_serves_nothing(tmp_path: Path, operation: Any) -> None:
    """Before the switch the server comes back; after it the target is told once more, and serves the port."""
    failure = FakeFailure(operation=operation, times=1)
    async with moved(tmp_path, failure) as mover:
        source = await mover.host()
        await mover.act({"migrate": None})
        if operation == "receive":
            await mover.calm("ACTIVE")
            await mover.is_served_on(source)
            await is_had(mover)
        else:
            await mover.calm("VERIFY_RESIZE")
            await mover.is_served_on(other(source))
        await mover.asking.no_differences()


async def test_another_provider_of_the_same_host(tmp_path: Path) -> None:
    """A resize in place holds both; Neutron is told of the second, and after a revert of the first again."""
    (agent, first), second = providers(FIRST), provider_uuid(FIRST, "spare")
    spare = HostProvider(
        name="spare",
        uuid=second,
        parent="agent",
        traits=(PHYSICAL,),
        inventories=first.inventories,
        hosts=FIRST,
    )
    async with moved(tmp_path, of_hosts=(agent, first, spare), hosts=1, allow_resize_to_same_host=True) as mover:
        host, before = await mover.asking.bound(mover.port)
        [after] = {bridge(FIRST), second} - {before}
        await mover.act({"resize": {"flavorRef": "2"}})
        await mover.calm("VERIFY_RESIZE")
        await mover.asking.is_bound(mover.port, host, after)
        await mover.act({"revertResize": None})
        await mover.calm("ACTIVE")
        await mover.asking.is_bound(mover.port, host, before)
        await mover.asking.no_differences()


@pytest.mark.parametrize("ends", ["completed", "cancelled"])
async def test_a_second_binding_says_what_serves_the_port_there(tmp_path: Path, ends: str) -> None:
    """While the guest is copied both hosts hold it, each binding says by what; then one of them does."""
    async with moved(tmp_path, NEVER_DONE) as mover:
        source = await mover.host()
        target = other(source)
        await mover.begin()
        await mover.copying()
        assert await mover.told() == {source: ("ACTIVE", bridge(source)), target: ("INACTIVE", bridge(target))}
        assert (await mover.another())["status"] == "ERROR"
        await (mover.force() if ends == "completed" else mover.end("DELETE", ""))
        await mover.ends_as(ends)
        has_it = target if ends == "completed" else source
        await mover.bound_to(has_it)
        await mover.is_served_on(has_it)
        await is_had(mover)
        await mover.asking.no_differences()


async def test_a_neutron_without_second_bindings(tmp_path: Path) -> None:
    """Neutron is told of the target's provider after the switch."""
    async with moved(tmp_path) as mover:
        source = await mover.host()
        absent = refusal("ExtensionNotFound", "no such extension")
        await mover.asking.neutron.refuse(404, lambda _method, path: path.endswith("/binding-extended"), absent)
        await mover.begin()
        await mover.ends_as("completed")
        await mover.is_served_on(other(source))


async def test_a_live_migration_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with moved(tmp_path, NEVER_DONE) as mover:
        source = await mover.host()
        await mover.begin()
        target = await mover.copying()
        await mover.restart()
        await mover.copying()
        assert await mover.told() == {source: ("ACTIVE", bridge(source)), target: ("INACTIVE", bridge(target))}
        await mover.force()
        await mover.ends_as("completed")
        await mover.bound_to(target)
        await mover.is_served_on(target)
        await mover.asking.no_differences()


@pytest.mark.parametrize("fault", [Mishap.ERROR, Mishap.LOST], ids=lambda fault: fault.name)
async def test_a_restart_between_the_switch_and_the_binding(tmp_path: Path, fault: Mishap) -> None:
    """Whatever Neutron was told before, it is told of what serves the port where the server is."""
    async with moved(tmp_path) as mover:
        source = await mover.host()
        await mover.asking.neutron.fail(fault, binds)
        await mover.act({"migrate": None})
        await mover.asking.neutron.meeting.wait()
        await mover.calm("VERIFY_RESIZE")
        await mover.restart()
        await mover.asking.neutron.heal()
        await mover.is_served_on(other(source))
        await mover.act({"revertResize": None})
        await mover.calm("ACTIVE")
        await mover.is_served_on(source)
        await mover.asking.no_differences()


async def test_a_host_of_another_cell_serves_it(tmp_path: Path) -> None:
    """There and, by a revert, back."""
    far = "cell2-host1"
    async with moved(tmp_path, of_hosts=(*providers(FIRST), *providers(far)), cells=2, hosts=1) as mover:
        source = await mover.host()
        [target] = {FIRST, far} - {source}
        await mover.act({"migrate": None})
        await mover.calm("VERIFY_RESIZE")
        await mover.is_served_on(target)
        await mover.act({"revertResize": None})
        await mover.calm("ACTIVE")
        await mover.is_served_on(source)
        await mover.asking.no_differences()
