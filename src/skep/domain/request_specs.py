"""What was asked for: everything that placement may look at, and nothing else."""

from __future__ import annotations

import msgspec

from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.lifetimes import Lifetime
from skep.domain.nested.reading import resources_of, wanted
from skep.domain.nested.wanted import DeviceRequest, Wanted
from skep.domain.resources import Resources


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
    lifetime: Lifetime | None = None
    """Of the hint `lifetime`, worked out once where the server is asked for; None: nobody knows."""

    @property
    def expected_end(self) -> int | None:
        """When the server is expected to be gone, microseconds since the epoch; None: nobody knows."""
        return self.lifetime.end if self.lifetime is not None else None

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
            return wanted(self.flavor, self.image.properties if self.image is not None else {}, self.devices)
        except BadRequest:
            return None
