"""What was asked for: everything that placement may look at, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skep.domain.destinations import Destination
from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.given_hints import Hints
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.lifetimes import Lifetime, lifetime_from
from skep.domain.nested.reading import NO_PORTS, resources_of, wanted
from skep.domain.nested.wanted import DeviceRequest, PortsWanted, Wanted
from skep.domain.resources import Resources
from skep.domain.spread import HINT, read_hint, spread_group


class RequestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The wish behind one server, kept for all its moves. All members of one request share its content."""

    project_id: ProjectId
    user_id: UserId
    flavor: Flavor
    image: Image | None = None
    boot_from_volume: bool = False
    availability_zone: str | None = None
    """None: the user named none, so any."""
    forced_host: str | None = None
    """Of `az:host`: filters that judge suitability are skipped (Nova's force_hosts)."""
    forced_node: str | None = None
    requested_host: str | None = None
    """`host` of API 2.74: filters apply."""
    requested_node: str | None = None
    """`hypervisor_hostname` of API 2.74."""
    ignore_hosts: tuple[str, ...] = ()
    group: GroupRule | None = None
    same_host: tuple[str, ...] = ()
    """Instance UUIDs of the hint; the conductor resolves them into `same_host_names` before it asks."""
    different_host: tuple[str, ...] = ()
    same_host_names: tuple[str, ...] | None = None
    """None: the hint was not given. Empty: it was, and none of the servers has a host."""
    different_host_names: tuple[str, ...] = ()
    scheduler_hints: dict[str, object] = {}
    """All hints as the user sent them (shown since API 2.100)."""
    required_aggregates: tuple[int, ...] = ()
    devices: tuple[DeviceRequest, ...] = ()
    """Of `pci_passthrough:alias`, as the operator's aliases meant it when the server was asked for."""
    target_cell: CellUuid | None = None
    """Of the hint `target_cell`: only hosts of this cell."""
    different_cells: tuple[CellUuid, ...] = ()
    """Of the hint `different_cell`: no host of these cells."""
    rebuilt_from: tuple[str, ...] = ()
    """Ids of the images beside its own that the server may be rebuilt from, the latest last. Only the API database
    keeps them."""
    lifetime: Lifetime | None = None
    """From the hint `lifetime`, computed once when the request is accepted; None: unknown."""

    config_drive: bool = False
    """Whether its host has to give it a config drive. Releases before 0.8.0 leave it out."""
    ports: PortsWanted = PortsWanted()
    """Of the ports that its user brought. Releases before 0.10.0 leave it out."""

    @property
    def expected_end(self) -> int | None:
        """The server's expected end, microseconds since 1970; None: unknown."""
        return self.lifetime.end if self.lifetime is not None else None

    def resized(self, flavor: Flavor, devices: tuple[DeviceRequest, ...]) -> RequestSpec:
        """Return the wish once the server has another flavor; what the flavor before it asked for is gone."""
        return msgspec.structs.replace(self, flavor=flavor, devices=devices, group=self._group_of(flavor))

    def _group_of(self, flavor: Flavor) -> GroupRule | None:
        if self.group is None:
            return None
        plain = msgspec.structs.replace(self.group, spread=())
        try:
            hinted = read_hint(self.scheduler_hints[HINT]) if HINT in self.scheduler_hints else ()
            return spread_group(plain, hinted, flavor.extra_specs)
        except (BadRequest, ValueError):
            # The API refuses it. A resize of before it did so keeps what was asked for.
            return self.group

    def resources(self) -> Resources:
        """Return what a host must have free. A server that boots from a volume has no local root disk.

        An amount of disk that the flavor's extra specs name holds for it all the same.
        """
        flavor = msgspec.structs.replace(self.flavor, root_gb=0) if self.boot_from_volume else self.flavor
        return resources_of(flavor, self.wanted())

    def wanted(self) -> Wanted | None:
        """Return what is asked of the inside of a host: NUMA cells, nested providers, devices; None: nothing.

        The API refuses what contradicts itself. A spec of before it did so asks for flat amounts alone.
        """
        try:
            properties = self.image.properties if self.image is not None else {}
            return wanted(self.flavor, properties, self.devices, self.ports)
        except BadRequest:
            return None


def spec_of(
    *,
    project_id: ProjectId,
    user_id: UserId,
    flavor: Flavor,
    image: Image | None,
    devices: tuple[DeviceRequest, ...],
    destination: Destination,
    hints: Hints,
    group: GroupRule | None,
    cells: Mapping[str, CellUuid],
    now: int,
    config_drive: bool = False,
    boot_from_volume: bool = False,
    ports: PortsWanted = NO_PORTS,
) -> RequestSpec:
    """Put together what is asked for `now`, for a server that is created and for a dry run alike.

    `group` is the group of the hint; `cells` are those that hints name. Raises BadRequest, naming the extra spec, for
    a spread that makes no sense.
    """
    return RequestSpec(
        project_id=project_id,
        user_id=user_id,
        flavor=flavor,
        image=image,
        boot_from_volume=boot_from_volume,
        ports=ports,
        availability_zone=destination.zone,
        forced_host=destination.forced_host,
        forced_node=destination.forced_node,
        requested_host=destination.requested_host,
        requested_node=destination.requested_node,
        group=spread_group(group, hints.spread, flavor.extra_specs),
        same_host=hints.same_host,
        different_host=hints.different_host,
        scheduler_hints=hints.given,
        devices=devices,
        target_cell=cells[hints.target_cell] if hints.target_cell is not None else None,
        different_cells=tuple(cells[name] for name in hints.different_cell),
        lifetime=lifetime_from(hints.given, now),
        config_drive=config_drive,
    )


def with_host_names(spec: RequestSpec, hosts: Mapping[str, str]) -> RequestSpec:
    """Put the hosts of other servers (instance -> host) into a spec whose hints name these servers."""

    def named(servers: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({hosts[server] for server in servers if server in hosts}))

    return msgspec.structs.replace(
        spec,
        same_host_names=named(spec.same_host) if spec.same_host else None,
        different_host_names=named(spec.different_host),
    )
