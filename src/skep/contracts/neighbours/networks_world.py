"""What the contracts of networks are told of: networks, ports, groups, and servers that are to be built."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Protocol

import httpx
import msgspec

from skep.contracts.neighbours.served import ServedNeighbours, token
from skep.database import Connection
from skep.database.api import ends
from skep.database.api.tables import instance_mappings
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, new_uuid
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork, Vif
from skep.neighbours.networks.base import (
    AskedNetworks,
    ChosenNetworks,
    NetworkPorts,
    NetworksOfUsers,
    PortsOutcome,
    PortsRefused,
    WantedPorts,
)

THEIRS = "a" * 32
"""A project of others."""
HOST, OTHER_HOST = "host1", "host2"


class Networks(NetworksOfUsers, NetworkPorts, Protocol):
    """Both ports towards networks."""


class NetworksWorld:
    """The network service as the user `demo` and an admin have it, and the service that is under test."""

    def __init__(
        self, cloud: ServedNeighbours, client: httpx.AsyncClient, tokens: dict[str, str], networks: Networks
    ) -> None:
        self.cloud = cloud
        self.client = client
        self.tokens = tokens
        self.networks = networks
        self.project = cloud.first.project_ids["demo"]

    async def ask(self, method: str, path: str, body: Any = None, *, by: str = "demo") -> Any:
        """Ask for what must succeed; return what the only key of the answer has."""
        headers = {"X-Auth-Token": self.tokens[by]}
        answer = await self.client.request(method, f"/v2.0/{path}", json=body, headers=headers)
        assert answer.status_code < 300, (method, path, body, answer.text)
        return next(iter(answer.json().values())) if answer.content else None

    async def make(self, kind: str, *, by: str = "demo", **fields: Any) -> Any:
        """Make one of a kind (`security-group`), and return it."""
        return await self.ask("POST", f"{kind}s", {kind.replace("-", "_"): fields}, by=by)

    async def network(self, *cidrs: str, by: str = "demo", **fields: Any) -> str:
        """Make a network with subnets; return its id."""
        made = await self.make("network", by=by, **fields)
        for cidr in cidrs:
            await self.subnet(made["id"], cidr, by=by)
        return str(made["id"])

    async def subnet(self, network: str, cidr: str, *, by: str = "demo", **fields: Any) -> str:
        """Make a subnet; return its id."""
        version = 6 if ":" in cidr else 4
        made = await self.make("subnet", by=by, network_id=network, cidr=cidr, ip_version=version, **fields)
        return str(made["id"])

    async def port(self, network: str, *, by: str = "demo", **fields: Any) -> Any:
        """Make a port of a user's."""
        return await self.make("port", by=by, network_id=network, **fields)

    async def shown(self, port_id: str) -> Any:
        """Return a port as an admin sees it."""
        return await self.ask("GET", f"ports/{port_id}", by="admin")

    async def bindings(self, port_id: str) -> dict[str, str]:
        """Return the status of each binding of a port, by its host."""
        found = await self.ask("GET", f"ports/{port_id}/bindings", by="admin")
        return {one["host"]: one["status"] for one in found}

    async def quota(self, **limits: int) -> None:
        """Set quotas of the project."""
        await self.ask("PUT", f"quotas/{self.project}", {"quota": limits}, by="admin")

    async def ports_of(self, server: str) -> list[Any]:
        """Return the ports whose device is a server."""
        found: list[Any] = await self.ask("GET", f"ports?device_id={server}", by="admin")
        return found

    async def counts(self) -> dict[str, int]:
        """Return how many things there are."""
        kinds = ("networks", "subnets", "ports", "routers", "security-groups")
        return {kind: len(await self.ask("GET", kind, by="admin")) for kind in kinds}

    async def choose(
        self,
        networks: Any = "named",
        *named: RequestedNetwork,
        groups: tuple[str, ...] = (),
        servers: tuple[int, int] = (1, 1),
        by: str = "demo",
    ) -> ChosenNetworks:
        """Choose networks in the name of a user."""
        asked = AskedNetworks(
            networks=networks, named=named, security_groups=groups, min_count=servers[0], max_count=servers[1]
        )
        return await self.networks.choose(asked, self.context(by), self.tokens[by])

    def context(self, by: str = "demo") -> RequestContext:
        """Return the context of a user's request."""
        project = ProjectId(self.cloud.first.project_ids[by])
        roles = ("admin",) if by == "admin" else ("member",)
        return RequestContext(request_id=RequestId("req-1"), project_id=project, roles=roles)

    def asking(self, by: str = "demo") -> tuple[RequestContext, str]:
        """Return what tells who asks: the context and the token."""
        return self.context(by), self.tokens[by]

    async def server(self, *, attempt: int = 1, **columns: Any) -> InstanceUuid:
        """Store that a server waits for its cell; return its id."""
        instance = InstanceUuid(new_uuid())
        values = {
            "instance": instance,
            "request_id": "req-1",
            "project_id": self.project,
            "attempt": attempt,
            "created_at": self.cloud.clock.now(),
            **columns,
        }

        def unit(connection: Connection) -> None:
            connection.execute(instance_mappings.insert().values(**values))

        await self.cloud.database.write(unit)
        return instance

    async def becomes(self, instance: InstanceUuid, **columns: Any) -> None:
        """Store what became of a server."""

        def unit(connection: Connection) -> None:
            one = instance_mappings.c.instance == instance
            connection.execute(instance_mappings.update().where(one).values(**columns))

        await self.cloud.database.write(unit)

    async def ends(self, instance: InstanceUuid) -> None:
        """End a server that its cell has deleted, as the super conductor does."""
        await self.networks.release_ended({instance: True})
        await self.cloud.database.write(partial(ends.end, instances=[instance], now=self.cloud.clock.now()))

    def wanted(self, instance: InstanceUuid, *named: RequestedNetwork, **said: Any) -> WantedPorts:
        """Return the interfaces that a server is to have."""
        usual = WantedPorts(
            instance=instance,
            attempt=1,
            project_id=ProjectId(self.project),
            is_admin=False,
            host=HOST,
            zone="nova",
            networks=NETWORKS_NAMED,
            named=named,
            security_groups=(),
        )
        return msgspec.structs.replace(usual, **said)

    async def given(self, *wanted: WantedPorts) -> list[tuple[Vif, ...]]:
        """Make ports, none of which is refused."""
        return [self.vifs(one) for one in await self.networks.allocate(wanted)]

    async def refused(self, wanted: WantedPorts) -> str:
        """Ask for ports that are refused; return why. Nothing may be made."""
        before = await self.counts()
        [found] = await self.networks.allocate([wanted])
        assert isinstance(found, PortsRefused), found
        assert await self.counts() == before
        return found.message

    def vifs(self, found: PortsOutcome) -> tuple[Vif, ...]:
        """Return interfaces that must have been given."""
        assert isinstance(found, tuple), found
        return found


@contextlib.asynccontextmanager
async def networks_world(cloud: ServedNeighbours, networks: Networks) -> AsyncIterator[NetworksWorld]:
    """Sign the callers in."""
    async with cloud.identity_client() as identity, cloud.networks_client() as client:
        tokens = {name: await token(identity, name, name) for name in ("admin", "demo")}
        yield NetworksWorld(cloud, client, tokens, networks)


def addresses(*vifs: Vif) -> list[str]:
    """Return the fixed addresses of interfaces, in their order."""
    return [one.address for vif in vifs for subnet in vif.subnets for one in subnet.addresses]
