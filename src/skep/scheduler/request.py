"""One request as placement sees it: everything that filters and weighers read, worked out once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Resources

AGGREGATE_SCOPE = "aggregate_instance_extra_specs:"
VOLUME_SCOPE = "volume:"
VOLUME_HINT = "same_host_as_volume"


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is asked for, who may not be asked, and where the group's other members are."""

    spec: RequestSpec
    resources: Resources
    required_traits: tuple[str, ...]
    forbidden_traits: tuple[str, ...]
    aggregate_specs: tuple[tuple[str, str], ...]
    """Key and wanted value of the extra specs scoped to aggregates."""
    cell: CellUuid | None
    exclude_cells: tuple[CellUuid, ...]
    prefer: tuple[NodeUuid, ...]
    ignore: tuple[NodeUuid, ...]
    alternates: int
    shape: tuple[object, ...]
    """Requests with equal shapes get equal answers from every filter and weigher that is not per request."""
    volume_specs: tuple[tuple[str, str], ...] = ()
    """Field of the namespace `volume` and the condition on it, from extra specs."""
    volume_wanted: str | None = None
    """Of the hint `same_host_as_volume`."""
    group_nodes: Mapping[NodeUuid, int] = {}
    """How many members of the server group each node holds; set anew for each member of a request."""

    @property
    def is_forced(self) -> bool:
        """Whether an admin named the host in `az:host:node`: suitability is not judged."""
        return self.spec.forced_host is not None or self.spec.forced_node is not None


def placement_request(
    spec: RequestSpec,
    *,
    cell: CellUuid | None = None,
    exclude_cells: tuple[CellUuid, ...] = (),
    prefer: tuple[NodeUuid, ...] = (),
    ignore: tuple[NodeUuid, ...] = (),
    alternates: int = 2,
) -> PlacementRequest:
    """Work out what `spec` asks of a host."""
    resources = spec.resources()
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    scoped: tuple[tuple[str, str], ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    if spec.flavor.extra_specs:
        required, forbidden = spec.flavor.required_traits(), spec.flavor.forbidden_traits()
        scoped, volumes = _scoped(spec, AGGREGATE_SCOPE), _scoped(spec, VOLUME_SCOPE)
    volume = spec.scheduler_hints.get(VOLUME_HINT)
    shape = (
        tuple(sorted(resources.items())),
        required,
        forbidden,
        scoped,
        volumes,
        cell,
        exclude_cells,
        spec.availability_zone,
        spec.forced_host,
        spec.forced_node,
        spec.requested_host,
        spec.requested_node,
        spec.required_aggregates,
    )
    return PlacementRequest(
        spec=spec,
        resources=resources,
        required_traits=required,
        forbidden_traits=forbidden,
        aggregate_specs=scoped,
        cell=cell,
        exclude_cells=exclude_cells,
        prefer=prefer,
        ignore=ignore,
        alternates=alternates,
        shape=shape,
        volume_specs=volumes,
        volume_wanted=volume if isinstance(volume, str) else None,
    )


def _scoped(spec: RequestSpec, scope: str) -> tuple[tuple[str, str], ...]:
    """Return the flavor's extra specs that begin with `scope`, without it."""
    return tuple(
        sorted(
            (key.removeprefix(scope), value) for key, value in spec.flavor.extra_specs.items() if key.startswith(scope)
        )
    )
