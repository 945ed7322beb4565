"""What a create says of networks and security groups. Whether they are there is for the network service to say."""

from __future__ import annotations

from typing import Any

from skep.domain.vifs import RequestedNetwork
from skep.neighbours.networks.base import AskedNetworks


def asked_networks(server: dict[str, Any], min_count: int, max_count: int) -> AskedNetworks:
    """Read `networks` and `security_groups` of a body.

    An empty list is as if nothing was said (Nova's rule): the only network of the project is meant.
    """
    said = server.get("networks")
    groups = tuple(dict.fromkeys(group.get("name", "default") for group in server.get("security_groups") or ()))
    named: tuple[RequestedNetwork, ...] = ()
    if isinstance(said, list):
        named = tuple(_requested(one) for one in said)
    return AskedNetworks(
        networks=said if isinstance(said, str) else "named" if named else "absent",  # type: ignore[arg-type]
        named=named,
        security_groups=groups,
        min_count=min_count,
        max_count=max_count,
    )


def _requested(said: dict[str, Any]) -> RequestedNetwork:
    """Return one interface; a port goes before the network that is said beside it (Nova's rule)."""
    port = said.get("port")
    return RequestedNetwork(
        network_id=None if port else said.get("uuid"),
        fixed_ip=None if port else said.get("fixed_ip"),
        port_id=port or None,
        tag=said.get("tag"),
    )
