"""A Neutron whose ports ask for resources of their hosts, and the hosts that have them."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from skep.config.providers import HostProvider, ProviderInventory

EGRESS = "NET_BW_EGR_KILOBIT_PER_SEC"
PACKETS = "NET_PACKET_RATE_KILOPACKET_PER_SEC"
PHYSICAL = "CUSTOM_PHYSNET_PUBLIC"


def provider_uuid(host: str, name: str) -> str:
    """Return the UUID of a provider of a host."""
    return str(uuid5(NAMESPACE_DNS, f"{name}.{host}"))


def providers(host: str, kilobits: int = 1000) -> tuple[HostProvider, ...]:
    """Return what the agent of Neutron's on a host has: packets itself, bandwidth by its bridge."""
    agent = HostProvider(
        name="agent",
        uuid=provider_uuid(host, "agent"),
        inventories=(ProviderInventory(resource_class=PACKETS, total=100),),
        hosts=host,
    )
    bridge = HostProvider(
        name="bridge",
        uuid=provider_uuid(host, "bridge"),
        parent="agent",
        traits=(PHYSICAL,),
        inventories=(ProviderInventory(resource_class=EGRESS, total=kilobits),),
        hosts=host,
    )
    return agent, bridge


def flat(kilobits: int) -> dict[str, Any]:
    """Return a request in the form without groups."""
    return {"required": [PHYSICAL], "resources": {EGRESS: kilobits}}


class Policies:
    """What ports have of QoS policies: a service behind a port that can fail shows it to all (`reworded`)."""

    def __init__(self) -> None:
        self.shown: dict[str, dict[str, Any]] = {}
        """By port: fields that are shown of it beside its own."""
        self.of_networks: dict[str, dict[str, Any]] = {}
        """By network: the same for all of its ports."""

    def __call__(self, _method: str, _path: str, said: Any) -> Any:
        """Show the fields."""
        if isinstance(said, dict):
            for port in (*said.get("ports", ()), *([said["port"]] if "port" in said else [])):
                port.update(self.of_networks.get(port.get("network_id"), {}))
                port.update(self.shown.get(port["id"], {}))
        return said
