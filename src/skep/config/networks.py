"""The section of the network service."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section, tcp_port


def _quota(of: str) -> Meta:
    return Meta(ge=-1, le=2**31 - 1, description=f"{of} of a project; -1: any number (Neutron's name)")


class NetworksSettings(Section, frozen=True, kw_only=True):
    """The network service of which servers have their ports: the embedded one, or Neutron."""

    kind: Annotated[
        Literal["", "none", "embedded", "neutron"],
        Meta(
            description="`none`: there is no network service; `embedded`: Skep's own; `neutron`: a Neutron beside "
            "Keystone; empty: `skep up` takes Skep's own beside its own identity service, and roles that are started "
            "one by one have none"
        ),
    ] = ""
    endpoint: Annotated[
        str, Meta(description="Address of Neutron without `/v2.0`; empty: what Keystone's catalogue says")
    ] = ""
    look_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds between two looks at what a server has of Neutron, beside what Neutron tells"),
    ] = 3600.0
    port: Annotated[int, tcp_port("Port of the network service; 0 takes a free one")] = 9696
    listen: Annotated[bool, Meta(description="Whether API processes serve it")] = True
    public_url: Annotated[str, Meta(description="URL for clients; empty: its own address")] = ""
    mtu: Annotated[
        int,
        Meta(ge=68, le=65_535, description="Bytes of a packet: the most of a network, and what it has by default"),
    ] = 1500
    auto_allocated_cidr: Annotated[
        str, Meta(description="IPv4 addresses of the network that a project gets without asking for one")
    ] = "10.100.0.0/22"
    external_cidr: Annotated[
        str,
        Meta(
            description="IPv4 addresses of the external network with which a new cloud begins, floating ones among "
            "them; empty: 203.0.113.0/24, which is for documentation, and 100.125.0.0/24 where `skep up` puts hosts "
            "into network namespaces"
        ),
    ] = ""
    quota_network: Annotated[int, _quota("Networks")] = 100
    quota_subnet: Annotated[int, _quota("Subnets")] = 100
    quota_port: Annotated[int, _quota("Ports")] = 500
    quota_security_group: Annotated[int, _quota("Security groups")] = 10
    quota_security_group_rule: Annotated[int, _quota("Rules of security groups")] = 100
    quota_router: Annotated[int, _quota("Routers")] = 10
    quota_floatingip: Annotated[int, _quota("Floating addresses")] = 50

    def __post_init__(self) -> None:
        """Refuses addresses that make no subnet, and one that would be ignored."""
        if self.endpoint and self.kind != "neutron":
            raise ValueError(f"endpoint is read only with kind = `neutron`, and kind is `{self.kind}`")
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint must begin with http:// or https://")
        for name, said in (("auto_allocated_cidr", self.auto_allocated_cidr), ("external_cidr", self.external_cidr)):
            if not said and name == "external_cidr":
                continue
            try:
                network = IPv4Network(said)
            except ValueError as error:
                raise ValueError(f"{name} must be an IPv4 network such as 10.100.0.0/22: {error}") from error
            if network.prefixlen > 30:
                raise ValueError(f"{name} must have room for servers: a prefix of at most 30 bits")
