"""Traits that the flavor requires (`trait:NAME=required`), forbids, or of which it wants one (`trait:any_of=A,B`)."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has all required and none of the forbidden traits."""
    mask = hosts.all()
    for trait in request.required_traits:
        mask &= hosts.with_trait(trait)
    for trait in request.forbidden_traits:
        mask &= ~hosts.with_trait(trait)
    for choice in request.any_of_traits:
        mask &= with_any(hosts, choice)
    return mask


def with_any(hosts: HostView, traits: tuple[str, ...]) -> Mask:
    """Return who has at least one of the traits."""
    mask = hosts.none()
    for trait in traits:
        mask |= hosts.with_trait(trait)
    return mask


def stage(request: PlacementRequest) -> str:
    """Name the traits: they come from the flavor, which the user chose."""
    wanted = [*request.required_traits, *(f"no {trait}" for trait in request.forbidden_traits)]
    wanted += [" or ".join(choice) for choice in request.any_of_traits]
    return f"traits ({', '.join(wanted)})"


FILTER = Filter(
    name="TraitsFilter",
    passes=passes,
    stage=stage,
    applies=lambda request: bool(request.required_traits or request.forbidden_traits or request.any_of_traits),
    steady=True,
)
