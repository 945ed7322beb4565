"""The adapter to Neutron keeps the contracts of networks, over HTTP towards the embedded service of the same API."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from skep.contracts.neighbours.attached_interfaces import AttachedInterfacesContract
from skep.contracts.neighbours.network_ports import NetworkPortsContract
from skep.contracts.neighbours.networks import NetworksOfUsersContract
from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import Networks, NetworksWorld
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.database.api import port_holders
from skep.database.api.holders import FIRST_LOOK
from skep.domain.errors import Unauthenticated, Unavailable
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.answers import new_client
from skep.neighbours.at_once import AT_ONCE
from skep.neighbours.networks.base import PortsAwaited
from skep.neighbours.networks.neutron import service
from skep.neighbours.networks.neutron.fenced import FencedNetworks
from skep.neighbours.networks.neutron.service import NeutronNetworks
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.processes.own_services import ApiPortLedger
from skep_lab.faulty_service import FaultyService, Mishap, faulty_service


class Adapter:
    @pytest.fixture
    async def networks(
        self, cloud: ServedNeighbours, clock: SteppedClock, credentials: ServiceCredentials
    ) -> AsyncIterator[Networks]:
        async with new_client(ssl.create_default_context()) as client:
            session, ledger = ServiceSession(credentials, client, clock), ApiPortLedger(cloud.database, clock)
            yield FencedNetworks(session, ledger, cloud.networks_url)


class TestPorts(Adapter, NetworkPortsContract):
    pass


class TestOfUsers(Adapter, NetworksOfUsersContract):
    pass


class TestAttached(Adapter, AttachedInterfacesContract):
    pass


class TestReplacedConductors(Adapter, NetworksContractBase):
    """What a conductor does that goes on after another took its work over; it asks without the ledger."""

    @pytest.fixture
    def late(self, world: NetworksWorld) -> NeutronNetworks:
        assert isinstance(world.networks, FencedNetworks)
        return NeutronNetworks(world.networks.skep)

    async def test_ports_of_a_later_attempt_stay(self, world: NetworksWorld, late: NeutronNetworks) -> None:
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        [vifs] = await world.given(world.wanted(server, network))
        await world.becomes(server, attempt=2)
        assert await world.given(world.wanted(server, network, attempt=2)) == [vifs]
        missing = RequestedNetwork(network_id=new_uuid())
        [outcome] = await late.allocate([world.wanted(server, network, missing)])
        assert isinstance(outcome, PortsAwaited)
        assert "no more this attempt's" in outcome.message
        assert (await world.networks.of_servers([server]))[server] == vifs

    async def test_a_port_that_is_made_late_is_a_double(self, world: NetworksWorld) -> None:
        """No row is told of it, and it goes with the next look; one that was attached has a place of its own."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        [[vif]] = await world.given(world.wanted(server, network))
        first = await world.shown(vif.id)
        await world.port(
            network.network_id or "",
            by="admin",
            project_id=world.project,
            device_id=server,
            device_owner="compute:nova",
            **{"binding:host_id": "host1", "binding:profile": first["binding:profile"]},
        )
        assert len(await world.ports_of(server)) == 2
        [told] = (await world.networks.of_servers([server]))[server]
        await world.networks.drop_doubles([server])
        [left] = await world.ports_of(server)
        assert left["id"] == told.id

    async def test_a_port_that_changed_since_it_was_looked_up_is_not_released(
        self, world: NetworksWorld, late: NeutronNetworks
    ) -> None:
        """It is asked again whether it may be: another attempt may have it by now."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        [vifs] = await world.given(world.wanted(server, network))
        asked = 0

        async def may() -> list[InstanceUuid]:
            nonlocal asked
            asked += 1
            if asked == 2:
                await world.becomes(server, attempt=2)
                await world.given(world.wanted(server, network, attempt=2))
            return [server] if asked <= 2 else []

        await late.release_those(may)
        assert asked > 2
        assert (await world.networks.of_servers([server]))[server] == vifs

    async def test_an_answer_that_does_not_come_concerns_one_server(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock
    ) -> None:
        """The others have their ports; the one is asked for again, and has them once."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        servers = [await world.server() for _ in range(3)]
        wanted = [world.wanted(one, network) for one in servers]
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.fail(Mishap.ERROR, lambda method, _path: method == "POST" and not neutron.met)
            found = await networks.allocate(wanted)
            assert sorted(type(one).__name__ for one in found) == ["PortsAwaited", "tuple", "tuple"]
            again = await networks.allocate(wanted)
        for before, after in zip(found, again, strict=True):
            assert isinstance(after, tuple)
            assert before == after or isinstance(before, PortsAwaited)
        assert [len(await world.ports_of(one)) for one in servers] == [1, 1, 1]

    async def test_nothing_is_known_of_any(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock
    ) -> None:
        """Then all wait, and only the first few were asked for."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        wanted = [world.wanted(await world.server(), network) for _ in range(AT_ONCE + 3)]
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.fail(Mishap.ERROR)
            found = await networks.allocate(wanted)
            assert {type(one).__name__ for one in found} == {"PortsAwaited"}
            await neutron.heal()
            assert all(isinstance(one, tuple) for one in await networks.allocate(wanted))

    async def test_a_change_whose_answer_is_lost_is_looked_at(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock
    ) -> None:
        """The row is told what became of the interfaces."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server(cell="c")
        [[vif]] = await world.given(world.wanted(server, network))
        clock.advance(600)
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.fail(Mishap.LOST, lambda method, _path: method == "DELETE")
            with pytest.raises(Unavailable):
                await networks.detach(server, vif.id, *world.asking())
        assert await world.ports_of(server) == []
        due = partial(port_holders.take_due, now=clock.now() + FIRST_LOOK, limit=10)
        [holder] = await world.cloud.database.write(due)
        assert (holder.instance, holder.since) == (server, clock.now())

    async def test_a_token_that_is_refused(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock
    ) -> None:
        """It is a 401, whatever was asked."""
        made = await world.networks.create_group("web", "", *world.asking())
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.refuse(401)
            with pytest.raises(Unauthenticated):
                await networks.delete_group(made.id, *world.asking())
            with pytest.raises(Unauthenticated):
                await networks.group(made.id, *world.asking())

    async def test_ports_are_listed_page_by_page(self, world: NetworksWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(service, "PAGE", 2)
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        servers = [await world.server() for _ in range(5)]
        await world.given(*(world.wanted(one, network) for one in servers))
        for one in servers:
            await world.becomes(one, cell="c", deleted_at=world.cloud.clock.now())
        assert set(await world.networks.orphans()) == set(servers)


@asynccontextmanager
async def failing(
    world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock
) -> AsyncIterator[tuple[FaultyService, FencedNetworks]]:
    """Reach the service by a port that can fail."""
    async with (
        faulty_service(world.cloud.networks_url) as neutron,
        new_client(ssl.create_default_context()) as client,
    ):
        session, ledger = ServiceSession(credentials, client, clock), ApiPortLedger(world.cloud.database, clock)
        yield neutron, FencedNetworks(session, ledger, neutron.url)
