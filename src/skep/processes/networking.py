"""Chooses how servers get their ports: of the embedded network service, or none."""

from __future__ import annotations

from skep.config.sections import Config
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.neighbours.networks.absent import NoNetworks
from skep.processes.mapping import networks_settings
from skep.standalone.networks.of_servers import EmbeddedNetworks


def network_ports(config: Config, api: Database, clock: Clock) -> EmbeddedNetworks | NoNetworks:
    """Return the port towards networks, of users and of conductors."""
    if config.networks.kind != "embedded":
        return NoNetworks()
    return EmbeddedNetworks(networks_settings(config, ""), api, clock)
