"""Hosts bring the networks of their guests: what they are told in a cloud, and what stays while nothing can be told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.fake import FailureRule, FakeDriver
from skep.compute.drivers.fake_networks import NETWORKS_FILE
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain import host_networks
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.host_networks import HostNetworks, PluggedPort, Segment
from skep.domain.ids import CellUuid
from skep.messages.to_cell_conductor import ReadNetworks
from skep.messages.to_super_conductor import LookAtHostNetworks, ReadNetworkChanges
from skep.processes.all_in_one import AllInOneCloud
from skep.transport.base import super_conductor_for
from tests.functional.networks.test_bindings_of_live_migrations import NEVER_DONE, Mover
from tests.functional.networks.test_servers_with_addresses import NEWEST, Tenant

SECONDS = 0.2
"""Between two questions of a host."""


class Hosts:
    """The fake hosts of a cloud, and what they were told of networks."""

    def __init__(self, cloud: AllInOneCloud) -> None:
        self.cloud = cloud

    def driver(self, host: str) -> FakeDriver:
        """Return the driver of a host."""
        found = self.cloud.plane.drivers[host]
        assert isinstance(found, FakeDriver)
        return found

    def tunnels(self) -> dict[str, str]:
        """Give each host a tunnel, and return where they are."""
        found = {host: f"192.0.2.{number}" for number, host in enumerate(sorted(self.cloud.plane.drivers), 1)}
        for host, address in found.items():
            driver = self.driver(host)
            driver.settings = msgspec.structs.replace(driver.settings, tunnel_address=address)
        return found

    def fail(self, host: str, *rules: FailureRule) -> None:
        """Have the driver of a host fail."""
        self.driver(host).fail(rules)

    def told(self, host: str) -> HostNetworks:
        """Return what a host was told last."""
        [cell] = [one.name for one in self.cloud.plane.cells.values() if not one.is_cell0]
        file = self.cloud.plane.directory.host(cell, host) / NETWORKS_FILE
        return msgspec.json.decode(file.read_bytes(), type=HostNetworks) if file.exists() else HostNetworks()

    def ports(self, host: str) -> dict[str, PluggedPort]:
        """Return the ports that a host was told of, by their servers."""
        return {port.server: port for segment in self.told(host).segments for port in segment.ports}

    def segment(self, host: str) -> Segment:
        """Return the only network of a host."""
        [found] = self.told(host).segments
        return found

    async def hear(self, host: str, what: str, there: Callable[[HostNetworks], Any]) -> None:
        """Wait until a host was told something."""

        async def heard() -> bool:
            return bool(there(self.told(host)))

        await eventually(heard, f"host {host} hears of {what}")

    async def hear_of_peers(self, host: str, *addresses: str) -> None:
        """Wait until a host was told where the others of its only network are."""
        await self.hear(host, "the others", lambda told: told.segments[0].peers == addresses)


@asynccontextmanager
async def bringing(
    root: Path, *, hosts: int = 1, failures: Any = (), seconds: float = SECONDS
) -> AsyncIterator[tuple[Tenant, Hosts]]:
    config = http_config(root, failures=failures)
    fake = msgspec.structs.replace(config.compute.fake, networks=True)
    compute = msgspec.structs.replace(config.compute, fake=fake, networks_seconds=seconds)
    config = msgspec.structs.replace(config, compute=compute)
    async with serving_cloud(config, cells=1, hosts=hosts) as cloud, signed_in(cloud, "demo", "demo") as session:
        yield Tenant(cloud, session), Hosts(cloud)


async def host_of(cloud: AllInOneCloud, server: str) -> str:
    """Return the host of a server."""
    async with signed_in(cloud) as admin:
        shown = (await admin.ask("GET", f"/servers/{server}", version=NEWEST)).json()["server"]
    return str(shown["OS-EXT-SRV-ATTR:host"])


async def outside(demo: Tenant, network: str) -> str:
    """Join a network to an external one that is new; return the id of that."""
    async with signed_in(demo.cloud) as admin:
        tenant = Tenant(demo.cloud, admin)
        said = {"name": "outside", "router:external": True}
        made = await tenant.networks("POST", "networks", {"network": said})
        subnet = {"network_id": made["id"], "cidr": "203.0.113.0/24", "ip_version": 4}
        await tenant.networks("POST", "subnets", {"subnet": subnet})
    router = await demo.networks("POST", "routers", {"router": {"external_gateway_info": {"network_id": made["id"]}}})
    [subnet] = await demo.networks("GET", f"subnets?network_id={network}")
    await demo.networks("PUT", f"routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
    return str(made["id"])


async def test_a_host_has_the_network_of_a_guest_before_the_guest(tmp_path: Path) -> None:
    """However rarely it asks: it asks once more for a server whose port it was not told of."""
    async with bringing(tmp_path, seconds=3600) as (demo, hosts):
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}], hostname="first")
        assert server["status"] == "ACTIVE"
        host = await host_of(demo.cloud, server["id"])
        port = hosts.ports(host)[server["id"]]
        [shown] = await demo.ports(server["id"])
        assert (port.id, port.mac_address) == (shown["id"], shown["mac_address"])
        assert (port.addresses, port.host_name) == ((shown["fixed_ips"][0]["ip_address"],), "first")
        assert port.project == server["tenant_id"]
        assert hosts.segment(host).network == network["id"]


async def test_a_host_has_networks_that_are_sent_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_networks, "PACKED_ABOVE", 0)
    async with bringing(tmp_path) as (demo, hosts):
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}], hostname="first")
        assert hosts.ports(await host_of(demo.cloud, server["id"]))[server["id"]].host_name == "first"


async def test_what_users_change_is_on_the_host_soon(tmp_path: Path) -> None:
    async with bringing(tmp_path) as (demo, hosts):
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        host = await host_of(demo.cloud, server["id"])
        [port] = await demo.ports(server["id"])
        [group] = port["security_groups"]
        rule = {"security_group_id": group, "direction": "ingress", "protocol": "tcp"}
        rule |= {"port_range_min": 22, "port_range_max": 22}
        made = await demo.networks("POST", "security-group-rules", {"security_group_rule": rule})

        def rules(told: HostNetworks) -> list[int | None]:
            return [one.port_range_min for of in told.groups for one in of.rules if one.protocol == "tcp"]

        await hosts.hear(host, "a rule", lambda told: rules(told) == [22])
        await demo.networks("DELETE", f"security-group-rules/{made['id']}")
        await hosts.hear(host, "the end of the rule", lambda told: rules(told) == [])
        external = await outside(demo, network["id"])
        floating = {"floating_network_id": external, "port_id": port["id"]}
        led = await demo.networks("POST", "floatingips", {"floatingip": floating})

        def addresses(told: HostNetworks) -> list[str]:
            return [one.address for router in told.routers for one in router.floating]

        await hosts.hear(host, "a floating address", lambda told: addresses(told) == [led["floating_ip_address"]])
        await demo.networks("PUT", f"floatingips/{led['id']}", {"floatingip": {"port_id": None}})
        await hosts.hear(host, "its end", lambda told: told.routers and addresses(told) == [])
        await demo.delete(server["id"])
        await hosts.hear(host, "nothing", lambda told: not told.segments and not told.groups and told.version)


async def test_hosts_of_one_network_and_a_server_that_moves(tmp_path: Path) -> None:
    async with bringing(tmp_path, hosts=2, failures=[NEVER_DONE]) as (demo, hosts), signed_in(demo.cloud) as admin:
        tunnels = hosts.tunnels()
        network = await demo.network("10.1.0.0/24")
        servers = [await demo.built([{"uuid": network["id"]}]) for _ in range(2)]
        first, second = [await host_of(demo.cloud, one["id"]) for one in servers]
        assert {first, second} == set(tunnels)
        await hosts.hear_of_peers(first, tunnels[second])
        await hosts.hear_of_peers(second, tunnels[first])
        assert hosts.segment(first).number == hosts.segment(second).number
        mover = Mover(demo, admin, {"id": servers[0]["id"], "ports": []})
        await mover.begin()
        await mover.copying()
        assert hosts.ports(second).keys() == {servers[0]["id"], servers[1]["id"]}, "it is ready before it is copied"
        await mover.force()
        await mover.ends_as("completed")
        await hosts.hear(first, "the end of its server", lambda told: not told.segments)
        await hosts.hear_of_peers(second)
        assert hosts.ports(second).keys() == {servers[0]["id"], servers[1]["id"]}


async def test_what_is_there_stays_while_nothing_can_be_asked(tmp_path: Path) -> None:
    """Also over a restart of the agent; afterwards all of it is made true."""
    async with bringing(tmp_path) as (demo, hosts):
        plane = demo.cloud.plane
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        host = await host_of(demo.cloud, server["id"])
        before = hosts.told(host)
        [cell] = [one for one in plane.cells.values() if not one.is_cell0]
        await plane._conductor_of[cell.uuid].stop()
        await demo.networks("PUT", f"networks/{network['id']}", {"network": {"mtu": 1300}})
        await plane.agents.pop(host).stop(0)
        assert hosts.told(host) == before
        await plane._start_cell(cell)
        await hosts.hear(host, "the change", lambda told: told.segments[0].mtu == 1300)
        above = plane._super_conductor
        assert above is not None
        await above.stop()
        await demo.networks("PUT", f"networks/{network['id']}", {"network": {"mtu": 1200}})
        unanswered = ReadNetworks(host=host, anew=True)
        with pytest.raises(Unavailable):
            await plane.agents[host]._started.upcalls.once(unanswered)
        assert hosts.segment(host).mtu == 1300
        await plane._start_super_conductor()
        await hosts.hear(host, "the next change", lambda told: told.segments[0].mtu == 1200)
        assert hosts.ports(host).keys() == {server["id"]}


async def test_a_driver_that_fails_is_told_again(tmp_path: Path) -> None:
    """Its server is built all the same: the network follows."""
    async with bringing(tmp_path) as (demo, hosts):
        [host] = demo.cloud.plane.drivers
        hosts.fail(host, FailureRule(operation="networks", times=3))
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        assert server["status"] == "ACTIVE"
        await hosts.hear(host, "the server", lambda _told: hosts.ports(host).keys() == {server["id"]})


async def test_nothing_is_read_where_nothing_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conductor asks for changes, for all hosts at once, and looks at no host."""
    looked: list[str] = []
    async with bringing(tmp_path, hosts=3) as (demo, hosts):
        plane = demo.cloud.plane
        own = plane._own_services
        assert own is not None
        look, changes = own.networks.look_at_host, own.networks.host_changes

        async def watched(host: str, tunnel: str | None) -> Any:
            looked.append(host)
            return await look(host, tunnel)

        followed: list[int] = []

        async def following(since: int) -> Any:
            followed.append(since)
            return await changes(since)

        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        host = await host_of(demo.cloud, server["id"])
        await hosts.hear(host, "the server", lambda _told: hosts.ports(host).keys() == {server["id"]})
        monkeypatch.setattr(own.networks, "look_at_host", watched)
        monkeypatch.setattr(own.networks, "host_changes", following)

        async def quiet() -> bool:
            looked.clear()
            followed.clear()
            await eventually(lambda: _is_true(len(followed) >= 2), "changes were asked for twice")
            return not looked

        await eventually(quiet, "no host is looked at")
        await demo.network("10.9.0.0/24")
        assert await quiet(), "a network of no host"
        await demo.networks("PUT", f"networks/{network['id']}", {"network": {"mtu": 1300}})
        await hosts.hear(host, "the change", lambda told: told.segments[0].mtu == 1300)
        assert set(looked) == {host}


async def _is_true(value: bool) -> bool:
    return value


async def test_who_asks_for_another_is_refused(tmp_path: Path) -> None:
    async with bringing(tmp_path, hosts=2) as (demo, hosts):
        plane = demo.cloud.plane
        one, other = sorted(plane.agents)
        mine = plane.agents[one]._started.upcalls
        await hosts.hear(one, "nothing", lambda told: told.version)
        with pytest.raises(Forbidden, match=r"ReadNetworks\.host claims to be"):
            await mine.once(ReadNetworks(host=other))
        [cell] = [cell for cell in plane.cells.values() if not cell.is_cell0]
        above = super_conductor_for(cell.uuid)
        stranger = CellUuid("00000000-0000-0000-0000-000000000001")
        with pytest.raises(Forbidden, match=f"may not name cell {stranger}"):
            await plane.transport.call(above, LookAtHostNetworks(cell=stranger, host=one))
        with pytest.raises(Forbidden, match=f"may not name cell {stranger}"):
            await plane.transport.call(above, ReadNetworkChanges(cell=stranger, since=0))


async def test_a_cold_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The target has the network before the guest, the source no more."""
    async with bringing(tmp_path, hosts=2) as (demo, hosts), signed_in(demo.cloud) as admin:
        network = await demo.network("10.1.0.0/24")
        server = await demo.built([{"uuid": network["id"]}])
        source = await host_of(demo.cloud, server["id"])
        moved = await admin.ask("POST", f"/servers/{server['id']}/action", {"migrate": None}, version=NEWEST)
        assert moved.status_code == 202, moved.text

        async def there() -> Any:
            shown = await demo.server(server["id"])
            return shown if shown["status"] == "VERIFY_RESIZE" else None

        await eventually(there, "the server waits to be confirmed")
        target = await host_of(demo.cloud, server["id"])
        assert target != source
        assert hosts.ports(target).keys() == {server["id"]}
        said = capsys.readouterr().err
        assert "hosts mapped" in said
        assert "a guest is made before its networks" not in said
        await hosts.hear(source, "the end of its server", lambda told: not told.segments)
