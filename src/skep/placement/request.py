"""One request as placement sees it: everything that filters and weighers read, worked out once.

Requests come in few kinds: what was worked out for one is remembered for the next that asks for the same.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Hashable, Mapping

import msgspec
from msgspec.structs import replace

from skep.domain.capabilities import CONFIG_DRIVE_TRAIT
from skep.domain.guest_keys import AskedOfGuest, asked_of_guest
from skep.domain.guest_kinds import GuestKind, guest_kind
from skep.domain.host_attributes import AMOUNTS
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.nested.reading import any_of
from skep.domain.nested.wanted import GROUP_POLICY, Wanted
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Resources
from skep.placement.options import DEFAULT_OPTIONS, PlacementOptions
from skep.placement.prefilters import image_traits, implied_traits
from skep.placement.spreading import Domains

AGGREGATE_SCOPE = "aggregate_instance_extra_specs:"
VOLUME_SCOPE = "volume:"
VOLUME_HINT = "same_host_as_volume"

_MOST_REMEMBERED = 4096
"""Kinds of requests."""


class Shape(tuple[object, ...]):
    """What filters and weighers read that are not per request.

    One shape is one object as long as it is remembered, and looked up as that: its many parts need not be compared.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class RequiredAttribute(msgspec.Struct, frozen=True):
    """An attribute of the host that the flavor asks for."""

    path: tuple[str, ...]
    """Its name, and keys inside it."""
    wanted: str
    scoped: bool
    """Whether it stands under `capabilities:`; without any scope it concerns only hosts that have such an attribute."""


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
    prefer: tuple[NodeUuid, ...] = ()
    ignore: tuple[NodeUuid, ...] = ()
    home: NodeUuid | None = None
    """Of a move: which of them is the server's own host."""
    alternates: int = 2
    shape: tuple[object, ...]
    """Requests with equal shapes get equal answers from every filter and weigher that is not per request."""
    volume_specs: tuple[tuple[str, str], ...] = ()
    """Field of the namespace `volume` and the condition on it, from extra specs."""
    volume_wanted: str | None = None
    """Of the hint `same_host_as_volume`."""
    capabilities: tuple[RequiredAttribute, ...] = ()
    """Of attributes that stay as they are while servers come and go."""
    capabilities_of_amounts: tuple[RequiredAttribute, ...] = ()
    """Of attributes that do not."""
    guest_kind: GuestKind | None = None
    """What the image asks of the hypervisor."""
    of_guest: AskedOfGuest | None = None
    """What flavor and image ask of the guest, which drivers may refuse; None: nothing."""
    source_cell: CellUuid | None = None
    """Of a move: where the server is."""
    nested: Wanted | None = None
    """What is asked of NUMA cells, nested providers and devices; None: nothing."""
    any_of_traits: tuple[tuple[str, ...], ...] = ()
    """Of each of these a host must have at least one trait (`trait:any_of`)."""
    group_nodes: Mapping[NodeUuid, int] = {}
    """How many members of the server group each node holds; set anew for each member of a request."""
    spread: tuple[Domains, ...] = ()
    """How the group's other members stand to each topology spread constraint; set anew likewise."""

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
    home: NodeUuid | None = None,
    alternates: int = 2,
    source_cell: CellUuid | None = None,
    options: PlacementOptions = DEFAULT_OPTIONS,
) -> PlacementRequest:
    """Return what `spec` asks of a host."""
    asked = _asked(spec, cell, exclude_cells, source_cell, options)
    known = _remembered.get(asked)
    if known is None:
        known = _worked_out(spec, cell, exclude_cells, source_cell, options)
        _remembered[asked] = replace(known, spec=_without_lists(spec))
        if len(_remembered) > _MOST_REMEMBERED:
            _remembered.popitem(last=False)
    return replace(known, spec=spec, prefer=prefer, ignore=ignore, home=home, alternates=alternates)


_remembered: OrderedDict[Hashable, PlacementRequest] = OrderedDict()


def _without_lists(spec: RequestSpec) -> RequestSpec:
    """Leave out what users may make long and what is read of each request: thousands of specs are remembered."""
    return replace(
        spec,
        scheduler_hints={},
        ignore_hosts=(),
        same_host=(),
        same_host_names=None,
        different_host=(),
        different_host_names=(),
    )


def _asked(
    spec: RequestSpec,
    cell: CellUuid | None,
    exclude_cells: tuple[CellUuid, ...],
    source_cell: CellUuid | None,
    options: PlacementOptions,
) -> Hashable:
    """Return all that `_worked_out` reads."""
    flavor, image = spec.flavor, spec.image
    return (
        flavor.vcpus,
        flavor.memory_mb,
        flavor.root_gb,
        flavor.ephemeral_gb,
        flavor.swap_mb,
        tuple(flavor.extra_specs.items()),
        None if image is None else (image.disk_format, *image.properties.items(), *options.of_prefilters),
        spec.boot_from_volume,
        spec.devices,
        spec.ports,
        _volume_wanted(spec),
        cell,
        exclude_cells,
        source_cell,
        spec.availability_zone,
        spec.forced_host,
        spec.forced_node,
        spec.requested_host,
        spec.requested_node,
        spec.required_aggregates,
        spec.target_cell,
        spec.different_cells,
        spec.config_drive,
    )


def _worked_out(
    spec: RequestSpec,
    cell: CellUuid | None,
    exclude_cells: tuple[CellUuid, ...],
    source_cell: CellUuid | None,
    options: PlacementOptions,
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
    capabilities = _capabilities(spec.flavor.extra_specs)
    required = _with(required, *implied_traits(spec, options), *image_traits(spec, "required"))
    required = _with(required, CONFIG_DRIVE_TRAIT) if spec.config_drive else required
    forbidden = _with(forbidden, *image_traits(spec, "forbidden"))
    kind = guest_kind(spec.image.properties) if spec.image is not None and spec.image.properties else None
    properties = spec.image.properties if spec.image is not None else {}
    of_guest = asked_of_guest(spec.flavor.extra_specs, properties)
    nested, choices = spec.wanted(), any_of(spec.flavor.extra_specs)
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
        nested,
        choices,
        spec.target_cell,
        spec.different_cells,
        capabilities,
        kind,
        of_guest,
        source_cell,
    )
    return PlacementRequest(
        spec=spec,
        resources=resources,
        required_traits=required,
        forbidden_traits=forbidden,
        aggregate_specs=scoped,
        cell=cell,
        exclude_cells=exclude_cells,
        nested=nested,
        any_of_traits=choices,
        shape=_shape(shape),
        volume_specs=volumes,
        volume_wanted=_volume_wanted(spec),
        capabilities=tuple(one for one in capabilities if one.path[0] not in AMOUNTS),
        capabilities_of_amounts=tuple(one for one in capabilities if one.path[0] in AMOUNTS),
        guest_kind=kind,
        of_guest=of_guest,
        source_cell=source_cell,
    )


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def _shape(parts: tuple[object, ...]) -> Shape:
    """Return the one object for these parts."""
    return Shape(parts)


def _volume_wanted(spec: RequestSpec) -> str | None:
    """Return the volume next to which the server shall be."""
    volume = spec.scheduler_hints.get(VOLUME_HINT) if spec.scheduler_hints else None
    return volume if isinstance(volume, str) else None


def _with(traits: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(sorted({*traits, *more})) if more else traits


def _capabilities(extra_specs: Mapping[str, str]) -> tuple[RequiredAttribute, ...]:
    """Return what the flavor asks of attributes: with the scope `capabilities`, or without any."""
    found = []
    for key, wanted in extra_specs.items():
        scope, *names = key.split(":")
        if scope == "capabilities" and names:
            found.append(RequiredAttribute(tuple(names), wanted, scoped=True))
        elif not names and key != GROUP_POLICY:
            found.append(RequiredAttribute((key,), wanted, scoped=False))
    return tuple(sorted(found, key=lambda one: (one.path, one.wanted))) if found else ()


def _scoped(spec: RequestSpec, scope: str) -> tuple[tuple[str, str], ...]:
    """Return the flavor's extra specs that begin with `scope`, without it."""
    return tuple(
        sorted(
            (key.removeprefix(scope), value) for key, value in spec.flavor.extra_specs.items() if key.startswith(scope)
        )
    )
