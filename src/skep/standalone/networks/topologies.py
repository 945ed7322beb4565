"""The network that a project has without asking for one: made when a server is to have any network (`auto`).

It has a subnet, and a router to the default external network where there is one.
"""

from __future__ import annotations

from skep.database.api import network_rows
from skep.database.api import topologies as topology_rows
from skep.database.api.network_rows import NETWORKS, PORTS, ROUTERS
from skep.domain.networking import Network
from skep.standalone.networks import networks, quotas, routers, subnets
from skep.standalone.networks.bodies import NewNetwork, NewRouter, NewSubnet, WantedGateway
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.resources import fresh

NAME = "auto_allocated_network"
SUBNET_NAME = "auto_allocated_subnet_v4"
ROUTER_NAME = "auto_allocated_router"


def check(work: NetworkWork, project_id: str) -> None:
    """Raise InTheWay where a project has no topology and no quota for one. Nothing is made."""
    there = topology_rows.get(work.connection, project_id)
    if there is not None and there.network_id is not None:
        return
    for resource in ("network", "subnet", "router") if _outside(work) is not None else ("network", "subnet"):
        quotas.check(work, resource, project_id)


def ensure(work: NetworkWork, project_id: str) -> str:
    """Return the network of a project's topology, which is made unless it is there.

    Raises InTheWay where a quota is used up.
    """
    there = topology_rows.get(work.connection, project_id)
    if there is not None and there.network_id is not None:
        return there.network_id
    for resource in ("network", "subnet"):
        quotas.check(work, resource, project_id)
    network = networks.create(work, NewNetwork(name=NAME), fresh(work, project_id, name=NAME))
    said = NewSubnet(name=SUBNET_NAME, network_id=network.id, ip_version=4, cidr=work.settings.auto_allocated_cidr)
    subnet = subnets.create(work, said, fresh(work, project_id, name=SUBNET_NAME))
    router_id = None
    outside = _outside(work)
    if outside is not None:
        router_id = _route(work, project_id, outside, subnet.id)
    topology_rows.put(work.connection, project_id, network.id, router_id)
    return network.id


def remove(work: NetworkWork, project_id: str) -> None:
    """Remove a project's topology with its network.

    Raises InTheWay while servers have ports there.
    """
    there = topology_rows.get(work.connection, project_id)
    if there is None:
        return
    network = None if there.network_id is None else network_rows.get(work.connection, NETWORKS, there.network_id)
    router = None if there.router_id is None else network_rows.get(work.connection, ROUTERS, there.router_id)
    topology_rows.remove(work.connection, project_id)
    if router is not None:
        joined = network_rows.where(work.connection, PORTS, device_id=router.id)
        for port in joined:
            if network is not None and port.network_id == network.id:
                routers.remove_interface(work, router, None, port.id)
        routers.delete(work, router)
    if network is not None:
        networks.delete(work, network)


def _outside(work: NetworkWork) -> Network | None:
    """Return the default external network."""
    return next(iter(network_rows.where(work.connection, NETWORKS, is_default=True)), None)


def _route(work: NetworkWork, project_id: str, outside: Network, subnet_id: str) -> str:
    quotas.check(work, "router", project_id)
    said = NewRouter(name=ROUTER_NAME, external_gateway_info=WantedGateway(network_id=outside.id))
    router = routers.create(work, said, fresh(work, project_id, name=ROUTER_NAME))
    routers.add_interface(work, router, subnet_id, None)
    return router.id
