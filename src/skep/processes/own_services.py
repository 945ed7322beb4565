"""Chooses of which services servers have ports and volumes: of the embedded network service, of Neutron, of Cinder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import httpx

from skep.config.authorities import authorities
from skep.config.sections import Config
from skep.database import Connection, clocks
from skep.database.api import port_holders
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.ids import InstanceUuid
from skep.neighbours.answers import new_client
from skep.neighbours.circuits import Circuits
from skep.neighbours.networks.absent import NoNetworks
from skep.neighbours.networks.neutron.fenced import FencedNetworks
from skep.neighbours.service_session import ServiceSession
from skep.neighbours.volumes.absent import NoVolumes
from skep.neighbours.volumes.cinder.calls import find_cinder
from skep.neighbours.volumes.cinder.of_users import ZoneRules
from skep.neighbours.volumes.cinder.service import CinderVolumes
from skep.processes.keystone import keystone_credentials
from skep.processes.mapping import api_settings, networks_settings
from skep.standalone.networks.of_servers import EmbeddedNetworks


class OwnServices:
    """What one process needs to give servers ports and volumes, of users and of conductors."""

    def __init__(self, config: Config, api: Database, clock: Clock, circuits: Circuits | None = None) -> None:
        """Raises Misconfigured when a file of the configuration cannot be used."""
        self._http: httpx.AsyncClient | None = None
        self.session: ServiceSession | None = None
        """With Neutron or Cinder."""
        self.networks: EmbeddedNetworks | FencedNetworks | NoNetworks = NoNetworks()
        self.volumes: CinderVolumes | NoVolumes = NoVolumes()
        if config.networks.kind == "embedded":
            self.networks = EmbeddedNetworks(networks_settings(config, ""), api, clock)
        if config.networks.kind != "neutron" and config.volumes.kind != "cinder":
            return
        self._http = new_client(authorities(config.identity.ca_file, "identity.ca_file"))
        self.session = session = ServiceSession(keystone_credentials(config.identity), self._http, clock, circuits)
        if config.networks.kind == "neutron":
            self.networks = FencedNetworks(session, ApiPortLedger(api, clock), config.networks.endpoint)
        if config.volumes.kind == "cinder":
            self.volumes = CinderVolumes(session, config.volumes.endpoint, zone_rules(config))

    async def find(self, config: Config) -> None:
        """Look the services up in the catalogue. Raises Unavailable where one is not there."""
        if self.session is None:
            return
        if config.networks.kind == "neutron" and not config.networks.endpoint:
            await self.session.endpoint("network")
        if config.volumes.kind == "cinder" and not config.volumes.endpoint:
            await find_cinder(self.session)

    async def close(self) -> None:
        """Close connections."""
        if self._http is not None:
            await self._http.aclose()


def zone_rules(config: Config) -> ZoneRules:
    """Return which zones servers and their volumes may be in."""
    default_zone = api_settings(config, "", "").default_availability_zone
    return ZoneRules(cross_zone_attach=config.volumes.cross_az_attach, default_zone=default_zone)


class ApiPortLedger:
    """A `PortLedger` in the API database, by whose clock a super conductor judges what is noted here."""

    def __init__(self, api: Database, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    async def hold(self, wanted: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Note that attempts of builds make ports."""
        return await self._api.write(lambda connection: port_holders.hold(connection, wanted, self._now(connection)))

    async def hold_living(self, instance: InstanceUuid) -> bool:
        """Note that a server that is there gets a port."""
        return await self._api.write(
            lambda connection: port_holders.hold_living(connection, instance, self._now(connection))
        )

    async def releasable(self, held: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports and may lose them."""
        return await self._api.read(partial(port_holders.releasable, held=held))

    async def hold_ended(self, servers: Mapping[InstanceUuid, bool]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports."""
        return await self._api.write(
            lambda connection: port_holders.hold_ended(connection, servers, self._now(connection))
        )

    async def look_soon(self, servers: Collection[InstanceUuid]) -> None:
        """Have servers looked at."""
        await self._api.write(lambda connection: port_holders.look_soon(connection, servers, self._now(connection)))

    async def gone(self, servers: Collection[InstanceUuid]) -> Collection[InstanceUuid]:
        """Return those servers that do not live."""
        return await self._api.read(partial(port_holders.gone, servers=list(servers)))

    async def hold_gone(self, instance: InstanceUuid) -> bool:
        """Note that a server that is gone may have ports."""
        return await self._api.write(
            lambda connection: port_holders.hold_gone(connection, instance, self._now(connection))
        )

    def _now(self, connection: Connection) -> int:
        return clocks.now(connection, self._clock)
