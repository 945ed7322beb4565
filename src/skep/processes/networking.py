"""Chooses how servers get their ports: of the embedded network service, of Neutron, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import httpx

from skep.config.authorities import authorities
from skep.config.sections import Config
from skep.database.api import port_holders
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.ids import InstanceUuid
from skep.neighbours.answers import new_client
from skep.neighbours.networks.absent import NoNetworks
from skep.neighbours.networks.neutron.fenced import FencedNetworks
from skep.neighbours.service_session import ServiceSession
from skep.processes.keystone import keystone_credentials
from skep.processes.mapping import networks_settings
from skep.standalone.networks.of_servers import EmbeddedNetworks


class Networking:
    """The port towards networks of one process, of users and of conductors."""

    def __init__(self, config: Config, api: Database, clock: Clock) -> None:
        """Raises Misconfigured when a file of the configuration cannot be used."""
        self._http: httpx.AsyncClient | None = None
        self.session: ServiceSession | None = None
        """With Neutron."""
        self.ports: EmbeddedNetworks | FencedNetworks | NoNetworks
        if config.networks.kind == "embedded":
            self.ports = EmbeddedNetworks(networks_settings(config, ""), api, clock)
        elif config.networks.kind == "neutron":
            self._http = new_client(authorities(config.identity.ca_file, "identity.ca_file"))
            self.session = ServiceSession(keystone_credentials(config.identity), self._http, clock)
            self.ports = FencedNetworks(self.session, ApiPortLedger(api, clock), config.networks.endpoint)
        else:
            self.ports = NoNetworks()

    async def close(self) -> None:
        """Close connections."""
        if self._http is not None:
            await self._http.aclose()


class ApiPortLedger:
    """A `PortLedger` in the API database."""

    def __init__(self, api: Database, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    async def hold(self, wanted: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Note that attempts of builds make ports."""
        return await self._api.write(partial(port_holders.hold, wanted=wanted, now=self._clock.now()))

    async def hold_living(self, instance: InstanceUuid) -> bool:
        """Note that a server that is there gets a port."""
        return await self._api.write(partial(port_holders.hold_living, instance=instance, now=self._clock.now()))

    async def releasable(self, held: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports and may lose them."""
        return await self._api.read(partial(port_holders.releasable, held=held))

    async def hold_ended(self, servers: Mapping[InstanceUuid, bool]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports."""
        return await self._api.write(partial(port_holders.hold_ended, servers=servers, now=self._clock.now()))

    async def look_soon(self, servers: Collection[InstanceUuid]) -> None:
        """Have servers looked at."""
        await self._api.write(partial(port_holders.look_soon, servers=servers, now=self._clock.now()))

    async def gone(self, servers: Collection[InstanceUuid]) -> Collection[InstanceUuid]:
        """Return those servers that do not live."""
        return await self._api.read(partial(port_holders.gone, servers=list(servers)))

    async def hold_gone(self, instance: InstanceUuid) -> bool:
        """Note that a server that is gone may have ports."""
        return await self._api.write(partial(port_holders.hold_gone, instance=instance, now=self._clock.now()))
