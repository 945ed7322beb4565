"""The adapter to Neutron keeps the contracts of networks, over HTTP towards the embedded service of the same API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from skep.contracts.neighbours.attached_interfaces import AttachedInterfacesContract
from skep.contracts.neighbours.network_ports import NetworkPortsContract
from skep.contracts.neighbours.networks import NetworksOfUsersContract
from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import HOST, OTHER_HOST, Networks, NetworksWorld
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.database.api import port_holders
from skep.database.api.holders import FIRST_LOOK
from skep.domain.errors import BadRequest, Unauthenticated, Unavailable
from skep.domain.ids import InstanceUuid, ProjectId, new_uuid
from skep.domain.vifs import RequestedNetwork, VifBeside, VifDetails
from skep.neighbours.at_once import AT_ONCE
from skep.neighbours.networks.base import GroupChange, PortsAwaited, PortsRefused, WantedInterface, WantedPorts
from skep.neighbours.networks.neutron import interfaces, ports, service
from skep.neighbours.networks.neutron.fenced import FencedNetworks
from skep.neighbours.networks.neutron.service import NeutronNetworks
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.processes.own_services import ApiPortLedger
from skep_lab.faulty_service import FaultyService, Mishap, faulty_service
from tests.support.service_clients import unencrypted_client


class Adapter:
    @pytest.fixture
    async def networks(
        self, cloud: ServedNeighbours, clock: SteppedClock, credentials: ServiceCredentials
    ) -> AsyncIterator[Networks]:
        async with unencrypted_client() as client:
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

    @pytest.mark.parametrize("fault", [Mishap.LOST, Mishap.EMPTY, Mishap.CUT])
    async def test_ports_whose_making_had_no_answer(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock, fault: Mishap
    ) -> None:
        """What was made is found by what is said on each; what was not is made by the next attempt, beside nothing."""
        cidrs = ("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24")
        wanted = world.wanted(
            await world.server(), *[RequestedNetwork(network_id=await world.network(one)) for one in cidrs]
        )
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.fail(fault, lambda method, _path: method == "POST")
            [found] = await networks.allocate([wanted])
            assert neutron.met == ["POST /v2.0/ports"]
            assert isinstance(found, tuple) is (fault is Mishap.LOST)
            await neutron.heal()
            [vifs] = await networks.allocate([wanted])
        assert isinstance(vifs, tuple)
        assert [one.network_id for one in vifs] == [one.network_id for one in wanted.named]
        assert found == vifs or isinstance(found, PortsAwaited)
        assert {one["id"] for one in await world.ports_of(wanted.instance)} == {one.id for one in vifs}

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

    @pytest.mark.parametrize("status", [400, 405, 413, 418])
    async def test_a_refusal_without_a_form_ends_a_build(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock, status: int
    ) -> None:
        """What stands before Neutron may refuse what is asked; asked again it would be refused again."""
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.refuse(status, lambda method, _path: method == "POST")
            [outcome] = await networks.allocate([world.wanted(server, network)])
        assert outcome == PortsRefused(f"the network service answered {status}.")
        assert await world.ports_of(server) == []

    @pytest.mark.parametrize("status", [404, 408, 409, 412, 429, 503])
    async def test_a_page_about_a_service_that_is_away_ends_no_build(
        self, world: NetworksWorld, credentials: ServiceCredentials, clock: SteppedClock, status: int
    ) -> None:
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server = await world.server()
        async with failing(world, credentials, clock) as (neutron, networks):
            await neutron.refuse(status, lambda method, _path: method == "POST")
            [outcome] = await networks.allocate([world.wanted(server, network)])
            assert isinstance(outcome, PortsAwaited)
            await neutron.heal()
            [vifs] = await networks.allocate([world.wanted(server, network)])
        assert isinstance(vifs, tuple)

    async def test_many_ports_are_made_by_several_requests(
        self,
        world: NetworksWorld,
        credentials: ServiceCredentials,
        clock: SteppedClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """They stand in their order; where a later request is refused, what the others made goes."""
        monkeypatch.setattr(ports, "MOST_AT_ONCE", 2)
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        server, refused = await world.server(), await world.server()
        async with failing(world, credentials, clock) as (neutron, networks):
            asked: list[str] = []

            def posted(method: str, path: str, moment: str) -> None:
                if (method, moment) == ("POST", "before") and "/ports" in path:
                    asked.append(path)

            neutron.passes = posted
            [vifs] = await networks.allocate([world.wanted(server, *[network] * 5)])
            assert isinstance(vifs, tuple)
            assert len(asked) == 3
            shown = [(await world.shown(one.id))["binding:profile"]["skep"]["position"] for one in vifs]
            assert shown == [0, 1, 2, 3, 4]
            await neutron.refuse(413, lambda method, _path: method == "POST" and len(asked) > 4)
            [outcome] = await networks.allocate([world.wanted(refused, *[network] * 5)])
        assert isinstance(outcome, PortsRefused)
        assert await world.ports_of(refused) == []

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
        unencrypted_client() as client,
    ):
        session, ledger = ServiceSession(credentials, client, clock), ApiPortLedger(world.cloud.database, clock)
        yield neutron, FencedNetworks(session, ledger, neutron.url)


class Differing(httpx.AsyncBaseTransport):
    """Carries requests to the service, and answers some of them as another Neutron would."""

    def __init__(self) -> None:
        self._carrier = httpx.AsyncHTTPTransport()
        self.answers: Callable[[str, str], tuple[int, Any] | None] = lambda _method, _path: None
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, or carry it on."""
        self.asked.append(f"{request.method} {request.url.path}")
        answer = self.answers(request.method, request.url.path)
        if answer is None:
            return await self._carrier.handle_async_request(request)
        return httpx.Response(answer[0], json=answer[1], request=request)

    async def aclose(self) -> None:
        """Close connections."""
        await self._carrier.aclose()


class OverTransport(NetworksContractBase):
    """Networks whose requests go by the transport of the test."""

    @pytest.fixture
    async def networks(
        self, cloud: ServedNeighbours, clock: SteppedClock, credentials: ServiceCredentials, transport: Differing
    ) -> AsyncIterator[Networks]:
        async with httpx.AsyncClient(transport=transport) as client:
            session, ledger = ServiceSession(credentials, client, clock), ApiPortLedger(cloud.database, clock)
            yield FencedNetworks(session, ledger, cloud.networks_url)


class TestOtherNeutrons(OverTransport):
    """What a Neutron may answer to second bindings that the embedded service never does."""

    @pytest.fixture
    def transport(self) -> Differing:
        return Differing()

    async def _bound(self, world: NetworksWorld) -> tuple[InstanceUuid, str]:
        """Make a server with a port; return both."""
        server = await world.server()
        network = RequestedNetwork(network_id=await world.network("10.0.0.0/24"))
        [[vif]] = await world.given(world.wanted(server, network))
        return server, vif.id

    async def test_a_port_that_is_given_back_is_left_alone_from_then_on(
        self, world: NetworksWorld, transport: Differing
    ) -> None:
        """Another server may have it at once: what is done to its bindings is done before."""
        brought = await world.port(await world.network("10.0.0.0/24"))
        server = await world.server()
        await world.given(world.wanted(server, RequestedNetwork(port_id=brought["id"])))
        await world.networks.bind_beside({server: OTHER_HOST})
        transport.asked.clear()
        await world.ends(server)
        await world.networks.release([(server, 1)])
        assert (await world.shown(brought["id"]))["device_id"] == ""
        assert await world.bindings(brought["id"]) == {}
        given_back = f"PUT /v2.0/ports/{brought['id']}"
        assert given_back in transport.asked
        after = transport.asked[len(transport.asked) - transport.asked[::-1].index(given_back) :]
        assert [one for one in after if brought["id"] in one] == []

    async def test_a_port_that_is_given_back_before_it_is_bound_is_bound_to_none(
        self,
        world: NetworksWorld,
        transport: Differing,  # noqa: ARG002 - it is what the ports are asked for by
    ) -> None:
        """It was listed as the server's: a binding that comes late would hold it for a host that it never has."""
        brought = await world.port(await world.network("10.0.0.0/24"))
        server = await world.server()
        await world.given(world.wanted(server, RequestedNetwork(port_id=brought["id"])))
        assert isinstance(world.networks, NeutronNetworks)
        [listed] = (await interfaces.ports_of(world.networks.skep, [server]))[server]
        await world.networks.release([(server, 1)])
        await ports.ServerPorts(world.networks.skep).bind(listed, OTHER_HOST)
        shown = await world.shown(brought["id"])
        assert (shown["device_id"], shown["binding:host_id"]) == ("", "")

    async def test_one_without_second_bindings(self, world: NetworksWorld, transport: Differing) -> None:
        """Ports follow their servers by `binding:host_id`, and no binding is asked for."""
        absent = {"NeutronError": {"type": "ExtensionNotFound", "message": "not here", "detail": ""}}
        transport.answers = lambda _method, path: (404, absent) if "/extensions/" in path else None
        server, port = await self._bound(world)
        assert await world.networks.bind_beside({server: OTHER_HOST}) == {}
        assert await world.networks.plugged_beside({server: OTHER_HOST}) == {}
        assert await world.bindings(port) == {HOST: "ACTIVE"}
        await world.networks.bind({server: OTHER_HOST})
        assert await world.bindings(port) == {OTHER_HOST: "ACTIVE"}
        assert not [one for one in transport.asked if "/bindings" in one]

    @pytest.mark.parametrize("extended", [True, False])
    async def test_what_served_a_port_on_the_host_before_is_not_told_of_the_next(
        self, world: NetworksWorld, transport: Differing, *, extended: bool
    ) -> None:
        """A port that asks for nothing any more: what else its profile says stays."""
        absent = {"NeutronError": {"type": "ExtensionNotFound", "message": "not here", "detail": ""}}
        transport.answers = lambda _method, path: (404, absent) if "/extensions/" in path and not extended else None
        server, network = await world.server(), await world.network("10.0.0.0/24")
        port = await world.port(network)
        await world.given(world.wanted(server, RequestedNetwork(port_id=port["id"])))
        before = await world.shown(port["id"])
        told = {**before["binding:profile"], "allocation": new_uuid(), "other": 1}
        await world.ask("PUT", f"ports/{port['id']}", {"port": {"binding:profile": told}}, by="admin")
        await world.networks.bind({server: OTHER_HOST})
        after = await world.shown(port["id"])
        assert after["binding:host_id"] == OTHER_HOST
        assert after["binding:profile"] == {**before["binding:profile"], "other": 1}

    @pytest.mark.parametrize("status", [400, 404, 409])
    async def test_a_second_binding_that_is_refused(
        self, world: NetworksWorld, transport: Differing, status: int
    ) -> None:
        refusal = {"NeutronError": {"type": "HostNotCompatible", "message": "no such host", "detail": ""}}
        transport.answers = lambda method, path: (
            (status, refusal) if (method, path.split("/")[-1]) == ("POST", "bindings") else None
        )
        server, port = await self._bound(world)
        refused = await world.networks.bind_beside({server: OTHER_HOST})
        assert refused == {server: f"port {port} cannot be bound to host {OTHER_HOST}: no such host"}
        assert await world.bindings(port) == {HOST: "ACTIVE"}

    async def test_a_host_that_cannot_plug_it(self, world: NetworksWorld, transport: Differing) -> None:
        failed = {"binding": {"host": OTHER_HOST, "status": "INACTIVE", "vif_type": "binding_failed"}}
        transport.answers = lambda method, path: (
            (201, failed) if (method, path.split("/")[-1]) == ("POST", "bindings") else None
        )
        server, port = await self._bound(world)
        refused = await world.networks.bind_beside({server: OTHER_HOST})
        assert refused == {server: f"port {port} cannot be bound to host {OTHER_HOST}: binding_failed"}

    async def test_a_host_that_plugs_it_otherwise(self, world: NetworksWorld, transport: Differing) -> None:
        """What is said of the port itself is of the host that has its server."""
        server, port = await self._bound(world)
        await world.networks.bind_beside({server: OTHER_HOST})
        said = {"bridge_name": "brq-there", "connectivity": "l2"}
        there = {"host": OTHER_HOST, "status": "INACTIVE", "vif_type": "bridge", "vif_details": said}
        here = {"host": HOST, "status": "ACTIVE", "vif_type": "ovs", "vif_details": {}}
        transport.answers = lambda _method, path: (
            (200, {"bindings": [here, there]}) if path.endswith("/bindings") else None
        )
        plugged = VifBeside(host=OTHER_HOST, type="bridge", details=VifDetails(bridge_name="brq-there"))
        assert await world.networks.plugged_beside({server: OTHER_HOST}) == {server: {port: plugged}}
        [vif] = (await world.networks.of_servers([server]))[server]
        assert vif.type == "tap"

    async def test_an_activation_that_is_refused_deletes_nothing(
        self, world: NetworksWorld, transport: Differing
    ) -> None:
        """The port stays where it is, and it is tried again."""
        server, port = await self._bound(world)
        await world.networks.bind_beside({server: OTHER_HOST})
        refusal = {"NeutronError": {"type": "PortBindingError", "message": "not now", "detail": ""}}
        transport.answers = lambda _method, path: (409, refusal) if path.endswith("/activate") else None
        with pytest.raises(Unavailable, match="not now"):
            await world.networks.bind({server: OTHER_HOST})
        assert await world.bindings(port) == {HOST: "ACTIVE", OTHER_HOST: "INACTIVE"}
        transport.answers = lambda _method, _path: None
        await world.networks.bind({server: OTHER_HOST})
        assert await world.bindings(port) == {OTHER_HOST: "ACTIVE"}


class TestPortsInOneRequest(OverTransport):
    """What a Neutron may answer to the making of several ports."""

    @pytest.fixture
    def transport(self) -> Differing:
        return Told()

    async def _wanted(self, world: NetworksWorld) -> WantedPorts:
        cidrs = ("10.0.0.0/24", "10.0.1.0/24")
        networks = [RequestedNetwork(network_id=await world.network(one), tag=one) for one in cidrs]
        return world.wanted(await world.server(), *networks)

    async def test_in_another_order(self, world: NetworksWorld, transport: Told) -> None:
        transport.retold = lambda ports: ports[::-1]
        wanted = await self._wanted(world)
        [vifs] = await world.given(wanted)
        assert [(one.network_id, one.tag) for one in vifs] == [(one.network_id, one.tag) for one in wanted.named]
        assert [one for one in transport.asked if "ports" in one] == ["GET /v2.0/ports", "POST /v2.0/ports"]

    async def test_bound_after_the_answer(self, world: NetworksWorld, transport: Told) -> None:
        """They are looked up, for the server is told how they are plugged."""
        transport.retold = lambda ports: [{**one, "binding:vif_type": "unbound"} for one in ports]
        [vifs] = await world.given(await self._wanted(world))
        assert "unbound" not in {one.type for one in vifs}
        assert transport.asked.count("GET /v2.0/ports") == 2

    @pytest.mark.parametrize(
        "retold",
        [
            lambda ports: ports[:1],
            lambda ports: [ports[0], ports[0]],
            lambda ports: [ports[0], {**ports[1], "device_id": ""}],
        ],
        ids=["fewer", "twice", "of-others"],
    )
    async def test_an_answer_of_other_ports(
        self, world: NetworksWorld, transport: Told, retold: Callable[[list[Any]], list[Any]]
    ) -> None:
        """Then it is looked what is there."""
        transport.retold = retold
        wanted = await self._wanted(world)
        [vifs] = await world.given(wanted)
        assert [one.network_id for one in vifs] == [one.network_id for one in wanted.named]
        assert len(await world.ports_of(wanted.instance)) == 2

    async def test_one_that_is_refused(self, world: NetworksWorld, transport: Told) -> None:
        """No other is there either, and a port of the user's is given back."""
        brought = await world.port(await world.network("10.0.0.0/24"))
        network = RequestedNetwork(network_id=await world.network("10.0.1.0/24"))
        missing = RequestedNetwork(network_id=new_uuid())
        server = await world.server()
        own = RequestedNetwork(port_id=brought["id"])
        [refused] = await world.networks.allocate([world.wanted(server, network, own, missing)])
        assert isinstance(refused, PortsRefused)
        assert transport.asked.count("POST /v2.0/ports") == 1
        assert await world.ports_of(server) == []
        assert (await world.shown(brought["id"]))["device_id"] == ""


class Told(Differing):
    """Tells of ports that are made together what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.retold: Callable[[list[Any]], list[Any]] = lambda ports: ports

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a request on."""
        response = await super().handle_async_request(request)
        await response.aread()
        if (request.method, request.url.path) != ("POST", "/v2.0/ports") or response.status_code != 201:
            return response
        said = response.json()
        return httpx.Response(201, json={"ports": self.retold(said["ports"])}, request=request)


class Routed(Differing):
    """Has one port whose address Neutron gives when it is bound: it is on a routed network."""

    def __init__(self) -> None:
        super().__init__()
        self.port = self.subnet = ""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a request on; a binding of the port gives it an address of the host's segment."""
        body = json.loads(request.content) if request.method == "PUT" and self._is_mine(request) else {}
        if body.get("port", {}).get("binding:host_id"):
            body["port"]["fixed_ips"] = [{"subnet_id": self.subnet}]
            headers = [one for one in request.headers.multi_items() if one[0] != "content-length"]
            request = httpx.Request("PUT", request.url, headers=headers, content=json.dumps(body))
        response = await super().handle_async_request(request)
        await response.aread()
        said = response.json() if "/ports" in request.url.path and response.content else {}
        for port in [*said.get("ports", ()), *filter(None, [said.get("port")])]:
            if port["id"] == self.port:
                port["ip_allocation"] = "deferred"
        return httpx.Response(response.status_code, json=said, request=request) if said else response

    def _is_mine(self, request: httpx.Request) -> bool:
        return bool(self.port) and request.url.path.endswith(f"/ports/{self.port}")


class TestRoutedNetworks(OverTransport):
    """A port without an address is taken where it gets one with its host."""

    @pytest.fixture
    def transport(self) -> Differing:
        return Routed()

    @pytest.fixture
    async def port(self, world: NetworksWorld, transport: Routed) -> RequestedNetwork:
        """Make the port."""
        network = await world.network()
        transport.subnet = await world.subnet(network, "10.0.0.0/24")
        transport.port = (await world.port(network, fixed_ips=[]))["id"]
        return RequestedNetwork(port_id=transport.port)

    async def test_a_build(self, world: NetworksWorld, port: RequestedNetwork) -> None:
        """The interfaces that the row is told of have the address."""
        chosen = await world.choose("named", port)
        server = await world.server()
        assert (await world.shown(port.port_id or ""))["fixed_ips"] == []
        [[vif]] = await world.given(world.wanted(server, *chosen.named))
        shown = await world.shown(vif.id)
        assert [one.address for subnet in vif.subnets for one in subnet.addresses] == [
            one["ip_address"] for one in shown["fixed_ips"]
        ]
        assert len(shown["fixed_ips"]) == 1

    async def test_an_interface_of_a_server_that_is_there(self, world: NetworksWorld, port: RequestedNetwork) -> None:
        server = await world.server(cell="c")
        wanted = WantedInterface(
            instance=server, project_id=ProjectId(world.project), host=HOST, zone="nova", network=port
        )
        vif = await world.networks.attach(wanted, *world.asking())
        assert [len(subnet.addresses) for subnet in vif.subnets] == [1]
        groups = await world.networks.set_group(
            GroupChange(instance=server, group="default", added=False), *world.asking()
        )
        assert [one.groups for one in groups] == [()]

    async def test_a_port_that_never_has_an_address_is_refused(
        self, world: NetworksWorld, transport: Routed, port: RequestedNetwork
    ) -> None:
        transport.port = ""
        with pytest.raises(BadRequest, match="a port with a fixed IP address"):
            await world.choose("named", port)
