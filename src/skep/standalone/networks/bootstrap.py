"""The networks that a new cloud begins with.

An external one, to which routers of projects lead by default, and behind it one of each first project, so that a server
has an address of which nothing was said.
"""

from __future__ import annotations

from skep.database import Connection
from skep.database.api import network_rows, projects
from skep.database.api.network_rows import NETWORKS
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.standalone.identity.bootstrap import FIRST_USERS
from skep.standalone.networks import networks, subnets, topologies
from skep.standalone.networks.bodies import NewNetwork, NewSubnet
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.resources import fresh
from skep.standalone.networks.settings import NetworksSettings

NAME = "public"
SUBNET_NAME = "public-subnet"


async def ensure_first_networks(database: Database, settings: NetworksSettings, clock: Clock) -> None:
    """Make the first networks of a cloud that has none; the external one is of no project."""

    def unit(connection: Connection) -> None:
        if network_rows.count(connection, NETWORKS):
            return
        caller = NetworkCaller(project_id="", is_admin=True)
        work = NetworkWork(connection=connection, caller=caller, settings=settings, now=clock.now())
        said = NewNetwork(name=NAME, external=True, is_default=True)
        network = networks.create(work, said, fresh(work, "", name=NAME))
        wanted = NewSubnet(
            name=SUBNET_NAME, network_id=network.id, ip_version=4, cidr=settings.external_cidr, enable_dhcp=False
        )
        subnets.create(work, wanted, fresh(work, "", name=SUBNET_NAME))
        for name, _ in FIRST_USERS.values():
            project = projects.by_name(connection, name)
            if project is not None:
                topologies.ensure(work, project.id)

    await database.write(unit)
