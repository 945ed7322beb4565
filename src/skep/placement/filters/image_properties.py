"""Architecture, hypervisor type, vm mode and hypervisor version that the image asks for.

The image's `hw_architecture`, `img_hv_type`, `hw_vm_mode` and `img_hv_requested_version`, or their older names.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from skep.domain.guest_kinds import GuestKind, canonical_architecture
from skep.domain.versions import satisfies
from skep.placement.filters.base import Filter
from skep.placement.hosts.attributes import attribute
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter. The options may name the architecture of images that name none."""
    default = canonical_architecture(options.image_properties_default_architecture)

    def wanted(request: PlacementRequest) -> GuestKind:
        kind = request.guest_kind or GuestKind()
        return kind if kind.architecture else replace(kind, architecture=default)

    def passes(hosts: HostView, request: PlacementRequest) -> Mask:
        kind = wanted(request)
        mask = attribute(hosts, ("supported_instances",)).judge(_supporting(kind))
        if kind.version is not None:
            mask &= attribute(hosts, ("hypervisor_version",)).judge(_satisfying(kind.version))
        return mask

    return (
        Filter(
            name="ImagePropertiesFilter",
            passes=passes,
            stage=lambda request: f"properties of the image ({wanted(request)})",
            applies=lambda request: wanted(request).is_asked_for,
            steady=True,
        ),
    )


def _supporting(kind: GuestKind) -> Callable[[tuple[tuple[str, str, str], ...]], bool]:
    asked = (kind.architecture, kind.hypervisor_type, kind.vm_mode)

    def supports(kinds: tuple[tuple[str, str, str], ...]) -> bool:
        return any(all(one is None or one == has for one, has in zip(asked, found, strict=True)) for found in kinds)

    return supports


def _satisfying(conditions: str) -> Callable[[int], bool]:
    """Judge versions; a host that does not tell its version is not asked for it."""
    return lambda number: not number or satisfies(number, conditions)
