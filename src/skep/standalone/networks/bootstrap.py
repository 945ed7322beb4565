"""The network that a new cloud begins with: an external one, to which routers of projects lead by default."""

from __future__ import annotations

from skep.database import Connection
from skep.database.api import network_rows
from skep.database.api.network_rows import NETWORKS
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.standalone.networks import networks, subnets
from skep.standalone.networks.bodies import NewNetwork, NewSubnet
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.resources import fresh
from skep.standalone.networks.settings import NetworksSettings

NAME = "public"
SUBNET_NAME = "public-subnet"
CIDR = "203.0.113.0/24"
"""Addresses for documentation (RFC 5737): they are nobody's, so that no real network is taken for this one."""


async def ensure_public(database: Database, settings: NetworksSettings, clock: Clock) -> None:
    """Make the external network in a cloud that has no network; it is of no project."""

    def unit(connection: Connection) -> None:
        if network_rows.count(connection, NETWORKS):
            return
        caller = NetworkCaller(project_id="", is_admin=True)
        work = NetworkWork(connection=connection, caller=caller, settings=settings, now=clock.now())
        said = NewNetwork(name=NAME, external=True, is_default=True)
        network = networks.create(work, said, fresh(work, "", name=NAME))
        wanted = NewSubnet(name=SUBNET_NAME, network_id=network.id, ip_version=4, cidr=CIDR, enable_dhcp=False)
        subnets.create(work, wanted, fresh(work, "", name=SUBNET_NAME))

    await database.write(unit)
