"""A cloud without a network service: servers have no interfaces, and what names a network is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.invalid_input import invalid_field
from skep.domain.vifs import LostPort, Vif, VifBeside
from skep.neighbours.networks.base import (
    NO_PROVIDERS_OF_SERVERS,
    NOT_BESIDE,
    AskedNetworks,
    ChosenNetworks,
    FloatingOfServer,
    GroupChange,
    GroupOfServer,
    NamedNetwork,
    PortsOfServers,
    PortsOutcome,
    PortsRefused,
    ProvidersOfServers,
    WantedInterface,
    WantedPorts,
    WantedRule,
)
from skep.neighbours.networks.hosts import BroughtByOthers

NOT_CONFIGURED = "no network service is configured"
EXPECTED = f"'auto' or 'none', since {NOT_CONFIGURED}"

GROUPS, FLOATING, NETWORKS = "security groups", "floating IP addresses", "networks"


class NoProxies:
    """What old clients ask the compute API for, where there is none of it: refused by name."""

    async def list_groups(self, _context: RequestContext, _token: str, *, of_all: bool) -> list[GroupOfServer]:  # noqa: ARG002
        """Refuse."""
        raise _none(GROUPS)

    async def group(self, _group: str, _context: RequestContext, _token: str) -> GroupOfServer:
        """Refuse."""
        raise _none(GROUPS)

    async def create_group(self, _name: str, _description: str, _context: RequestContext, _token: str) -> GroupOfServer:
        """Refuse."""
        raise _none(GROUPS)

    async def update_group(
        self, _group: str, _name: str, _description: str, _context: RequestContext, _token: str
    ) -> GroupOfServer:
        """Refuse."""
        raise _none(GROUPS)

    async def delete_group(self, _group: str, _context: RequestContext, _token: str) -> None:
        """Refuse."""
        raise _none(GROUPS)

    async def create_rule(self, _rule: WantedRule, _context: RequestContext, _token: str) -> tuple[str, GroupOfServer]:
        """Refuse."""
        raise _none(GROUPS)

    async def delete_rule(self, _rule: str, _context: RequestContext, _token: str) -> None:
        """Refuse."""
        raise _none(GROUPS)

    async def floating_pools(self, _context: RequestContext, _token: str) -> list[str]:
        """Refuse."""
        raise _none(FLOATING)

    async def floating_ips(self, _context: RequestContext, _token: str) -> list[FloatingOfServer]:
        """Refuse."""
        raise _none(FLOATING)

    async def floating_ip(self, _floating: str, _context: RequestContext, _token: str) -> FloatingOfServer:
        """Refuse."""
        raise _none(FLOATING)

    async def take_floating_ip(self, _pool: str | None, _context: RequestContext, _token: str) -> FloatingOfServer:
        """Refuse."""
        raise _none(FLOATING)

    async def give_floating_ip_back(self, _floating: str, _context: RequestContext, _token: str) -> None:
        """Refuse."""
        raise _none(FLOATING)

    async def lead_floating_ip(
        self, _instance: InstanceUuid, _address: str, _fixed: str | None, _context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Refuse."""
        raise _none(FLOATING)

    async def loosen_floating_ip(
        self, _instance: InstanceUuid, _address: str, _context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Refuse."""
        raise _none(FLOATING)

    async def list_networks(self, _context: RequestContext, _token: str) -> list[NamedNetwork]:
        """Refuse."""
        raise _none(NETWORKS)

    async def network(self, _network: str, _context: RequestContext, _token: str) -> NamedNetwork:
        """Refuse."""
        raise _none(NETWORKS)

    async def add_fixed_ip(
        self, _instance: InstanceUuid, _network: str, _context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Refuse."""
        raise _none(NETWORKS)

    async def remove_fixed_ip(
        self, _instance: InstanceUuid, _address: str, _context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Refuse."""
        raise _none(NETWORKS)


def _none(noun: str) -> NotFound:
    return NotFound(f"The resource could not be found: {noun} are not part of this release.")


class NoNetworks(BroughtByOthers, NoProxies):
    """A `NetworksOfUsers` and `NetworkPorts` where there are none."""

    async def choose(self, asked: AskedNetworks, _context: RequestContext, _token: str) -> ChosenNetworks:
        """Take what names no network."""
        for index, one in enumerate(asked.named):
            said = {"uuid": one.network_id, "port": one.port_id, "fixed_ip": one.fixed_ip, "tag": one.tag}
            key = next((key for key, value in said.items() if value is not None), "uuid")
            raise invalid_field(f"server.networks[{index}].{key}", said[key], EXPECTED)
        for index, name in enumerate(asked.security_groups):
            if name != "default":
                expected = f"'default' alone, since {NOT_CONFIGURED}"
                raise invalid_field(f"server.security_groups[{index}].name", name, expected)
        return ChosenNetworks(networks="none" if asked.networks == "none" else "auto", count=asked.max_count)

    async def security_groups(self, _ids: Sequence[str], _context: RequestContext, _token: str) -> list[GroupOfServer]:
        """Return that there are none."""
        return []

    elsewhere = False

    async def attach(self, wanted: WantedInterface, _context: RequestContext, _token: str) -> Vif:
        """Refuse: there is no network."""
        if wanted.network.port_id is not None:
            raise NotFound(f"Port {wanted.network.port_id[:80]} not found: {NOT_CONFIGURED}.")
        raise BadRequest(f"No interface can be attached to instance {wanted.instance}: {NOT_CONFIGURED}.")

    async def detach(self, _instance: InstanceUuid, port_id: str, _context: RequestContext, _token: str) -> None:
        """Refuse: there is no port."""
        raise NotFound(f"Port id {port_id[:80]} could not be found: {NOT_CONFIGURED}.")

    async def set_group(self, change: GroupChange, _context: RequestContext, _token: str) -> tuple[Vif, ...]:
        """Refuse: there is no group."""
        raise NotFound(f"Security group {change.group[:80]} not found: {NOT_CONFIGURED}.")

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsOutcome]:
        """Make nothing. A server for which ports were named gets none: the service was there when it was asked for."""
        refused = PortsRefused("there is no network service any more")
        return [refused if one.named else () for one in wanted]

    async def renew(self, _wanted: WantedPorts, _kept: Collection[str]) -> PortsOutcome | None:
        """There are no ports."""
        return ()

    async def release(self, _held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """There is nothing to release."""

    async def release_ended(self, _servers: Mapping[InstanceUuid, bool]) -> None:
        """There is nothing to release."""

    async def release_port(self, _instance: InstanceUuid, _port_id: str) -> None:
        """There is nothing to release."""

    async def bound_to(
        self, servers: Sequence[InstanceUuid], _several: Collection[InstanceUuid]
    ) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
        """There are no ports."""
        return {one: {} for one in servers}

    async def look_at(
        self, servers: Sequence[InstanceUuid], bound: Collection[InstanceUuid], _several: Collection[InstanceUuid]
    ) -> PortsOfServers:
        """There are no ports."""
        return PortsOfServers(vifs=dict.fromkeys(servers, ()), hosts={one: {} for one in bound})

    async def bind_beside(
        self, _hosts: Mapping[InstanceUuid, str], _providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS
    ) -> dict[InstanceUuid, str]:
        """There are no ports."""
        return {}

    async def plugged_beside(self, _hosts: Mapping[InstanceUuid, str]) -> dict[InstanceUuid, dict[str, VifBeside]]:
        """There are no ports."""
        return {}

    async def bind(
        self,
        _hosts: Mapping[InstanceUuid, str],
        _beside: Mapping[InstanceUuid, str] = NOT_BESIDE,
        _providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS,
    ) -> None:
        """There is nothing to bind."""

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
        """Return that no server has any."""
        return dict.fromkeys(servers, ())

    async def drop_doubles(self, _servers: Sequence[InstanceUuid]) -> None:
        """There is nothing to delete."""

    async def remake(self, _server: Instance) -> list[LostPort]:
        """There is nowhere to make it."""
        return []

    async def orphans(self) -> dict[InstanceUuid, list[str]]:
        """Return that there are none."""
        return {}

    async def release_orphans(self, _server: InstanceUuid) -> bool:
        """Say that there are none."""
        return False
