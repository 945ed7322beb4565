"""What a create says of networks and security groups. Whether they are there is for the network service to say."""

from __future__ import annotations

from typing import Any

from skep.domain.invalid_input import invalid_field
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.networks.base import AskedNetworks


def asked_networks(server: dict[str, Any], min_count: int, max_count: int) -> AskedNetworks:
    """Read `networks` and `security_groups` of a body.

    An empty list is as if nothing was said (Nova's rule): the only network of the project is meant.

    Raises BadRequest for an address beside a port.
    """
    said = server.get("networks")
    groups = tuple(dict.fromkeys(group.get("name", "default") for group in server.get("security_groups") or ()))
    named: tuple[RequestedNetwork, ...] = ()
    if isinstance(said, list):
        named = tuple(_requested(index, one) for index, one in enumerate(said))
    return AskedNetworks(
        networks=said if isinstance(said, str) else "named" if named else "absent",  # type: ignore[arg-type]
        named=named,
        security_groups=groups,
        min_count=min_count,
        max_count=max_count,
    )


def _requested(index: int, said: dict[str, Any]) -> RequestedNetwork:
    """Return one interface; a port goes before the network that is said beside it (Nova's rule).

    A port has its addresses already: one said beside it is refused (Nova's rule), whatever else is said.
    """
    port, address = said.get("port"), said.get("fixed_ip")
    if port and address is not None:
        expected = f"no address beside port '{port}', which has addresses of its own"
        raise invalid_field(f"server.networks[{index}].fixed_ip", address, expected)
    return RequestedNetwork(
        network_id=None if port else said.get("uuid"),
        fixed_ip=address,
        port_id=port or None,
        tag=said.get("tag"),
    )
