"""The adapter to Neutron keeps the contracts of networks, over HTTP towards the embedded service of the same API."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.attached_interfaces import AttachedInterfacesContract
from skep.contracts.neighbours.network_ports import NetworkPortsContract
from skep.contracts.neighbours.networks import NetworksOfUsersContract
from skep.contracts.neighbours.networks_world import Networks
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.neighbours.answers import new_client
from skep.neighbours.networks.neutron.fenced import FencedNetworks
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.processes.networking import ApiPortLedger


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
