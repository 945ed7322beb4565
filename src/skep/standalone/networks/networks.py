"""Networks: what may be done to one, as units of work."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from skep.database import Connection
from skep.database.api import network_rows, server_ports
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, PORTS, SUBNETS, ResourceKind
from skep.domain.networking import (
    FLOATING_IP,
    LEAST_MTU,
    LEAST_MTU_IPV6,
    ROUTER_GATEWAY,
    Network,
    NetworkResource,
)
from skep.http.operations import BOOLEAN
from skep.standalone.networks import floating_ips, subnets, views
from skep.standalone.networks.bodies import NetworkChanges, NewNetwork
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import FLAG, NUMBER, ListFilter, flag
from skep.standalone.networks.refusals import InTheWay, InvalidInput, NotPermitted
from skep.standalone.networks.resources import ResourceApi, changed, columns, said_of, store

_FOR_ADMINS = ("shared", "external", "is_default")


def create(work: NetworkWork, said: NewNetwork, base: NetworkResource) -> Network:
    """Make a network.

    Raises InvalidInput, NotPermitted for what only admins do.
    """
    _check_admin(work, said, "create_network", {"shared": False, "external": False, "is_default": False})
    network = Network(
        **columns(base),
        admin_state_up=said.admin_state_up,
        shared=said.shared,
        external=said.external,
        is_default=said.is_default,
        mtu=_mtu(work, said.mtu if said.mtu is not UNSET else 0),
        port_security_enabled=said.port_security_enabled,
    )
    _check_default(network)
    network_rows.insert(work.connection, NETWORKS, network)
    _only_default(work, network)
    return network


def update(work: NetworkWork, network: Network, changes: NetworkChanges) -> Network:
    """Change a network.

    Raises InvalidInput, NotPermitted, InTheWay where others use what it would not share any more.
    """
    _check_admin(work, changes, "update_network", {})
    values = said_of(changes, "name", "description", "admin_state_up", *_FOR_ADMINS, "port_security_enabled")
    if changes.mtu is not UNSET:
        values["mtu"] = _mtu(work, changes.mtu)
    after = changed(work, network, **values)
    _check_default(after)
    of_it = {"network_id": network.id}
    if after.mtu < LEAST_MTU_IPV6 and network_rows.count(work.connection, SUBNETS, **of_it, ip_version=6):
        raise InvalidInput(f"mtu: expected at least {LEAST_MTU_IPV6}, a subnet of IPv6 is on the network")
    if network.shared and not after.shared and not after.external:
        _check_no_others(work, network)
    if network.external and not after.external:
        outwards = (ROUTER_GATEWAY, FLOATING_IP)
        if network_rows.count(work.connection, PORTS, **of_it, device_owner=outwards):
            raise InTheWay(
                "ExternalNetworkInUse",
                f"External network {network.id} cannot be updated to be made "
                "non-external, since it has existing gateway ports.",
            )
    store(work, NETWORKS, after)
    _only_default(work, after)
    if (after.name, after.mtu) != (network.name, network.mtu):
        server_ports.note(work.connection, work.now, server_ports.on_network(network.id))
    return after


def delete(work: NetworkWork, network: Network) -> None:
    """Delete a network with its subnets, and the floating addresses of it that lead nowhere.

    Raises InTheWay while it has other ports.
    """
    floating = network_rows.where(work.connection, FLOATING_IPS, floating_network_id=network.id)
    unused = [one for one in floating if one.port_id is None]
    if network_rows.count(work.connection, PORTS, network_id=network.id) > len(unused):
        raise InTheWay(
            "NetworkInUse",
            f"Unable to complete operation on network {network.id}. There are one or more ports still in use on the "
            "network.",
        )
    for one in unused:
        floating_ips.delete(work, one)
    for subnet in network_rows.where(work.connection, SUBNETS, network_id=network.id):
        subnets.delete(work, subnet)
    network_rows.delete(work.connection, NETWORKS, [network.id])


def show(connection: Connection, found: list[Network], _caller: NetworkCaller) -> list[views.ShownNetwork]:
    """Show networks with their subnets."""
    ids = [network.id for network in found]
    tags = network_rows.tags_of(connection, ids)
    subnets_of = network_rows.ids_by(connection, SUBNETS, "network_id", ids)
    return [views.network(network, tags[network.id], subnets_of[network.id]) for network in found]


def _mtu(work: NetworkWork, said: int) -> int:
    """Return the MTU of a network; 0 asks for the usual one."""
    largest = work.settings.mtu
    if said and not LEAST_MTU <= said <= largest:
        raise InvalidInput(f"mtu: expected 0 or {LEAST_MTU} to {largest}, got {said}")
    return said or largest


def _check_admin(work: NetworkWork, said: NewNetwork | NetworkChanges, what: str, usual: dict[str, bool]) -> None:
    for name in _FOR_ADMINS:
        value = getattr(said, name)
        if not work.caller.is_admin and value is not UNSET and value is not usual.get(name, UNSET):
            raise NotPermitted(f"{what}:{'router:external' if name == 'external' else name}")


def _check_default(network: Network) -> None:
    if network.is_default and not network.external:
        raise InvalidInput("is_default: expected an external network")


def _only_default(work: NetworkWork, network: Network) -> None:
    """Make another network the default one no more."""
    if network.is_default:
        for other in network_rows.where(work.connection, NETWORKS, is_default=True):
            if other.id != network.id:
                store(work, NETWORKS, changed(work, other, is_default=False))


def _check_no_others(work: NetworkWork, network: Network) -> None:
    """Raise InTheWay where another project has ports or subnets on the network."""
    kinds: tuple[ResourceKind[Any], ...] = (PORTS, SUBNETS)
    for kind in kinds:
        if network_rows.others_on(work.connection, kind, network.id, {"", network.project_id}):
            raise InTheWay(
                "InvalidSharedSetting",
                f"Unable to reconfigure sharing settings for network {network.id}. Multiple tenants are using it.",
            )


RESOURCE = ResourceApi(
    noun="Network",
    member="network",
    path="networks",
    kind=NETWORKS,
    new=NewNetwork,
    changes=NetworkChanges,
    shown=views.ShownNetwork,
    filters={
        **dict.fromkeys(("admin_state_up", "shared", "is_default", "port_security_enabled"), FLAG),
        "router:external": ListFilter(flag, BOOLEAN, "external"),
        "mtu": NUMBER,
    },
    create=create,
    update=update,
    delete=delete,
    show=show,
)
