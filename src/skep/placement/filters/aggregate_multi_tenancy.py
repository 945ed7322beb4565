"""Aggregates for certain projects alone: `filter_tenant_id` in their metadata, also with anything after it."""

from __future__ import annotations

from collections.abc import Hashable

from skep.placement.filters.aggregate_values import said_anywhere, saying
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def names_projects(key: str) -> bool:
    """Tell whether a key of metadata lists projects."""
    return key.startswith("filter_tenant_id")


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts whose aggregates list the project, or list none."""
    reserved, open_to_it = hosts.none(), hosts.none()
    for inside, projects in saying(hosts, names_projects):
        reserved |= inside
        if request.spec.project_id in projects:
            open_to_it |= inside
    return open_to_it | ~reserved


def listed_project(table: HostTable, request: PlacementRequest) -> Hashable:
    """Return the project if some aggregate lists it: all others are the same to the filter."""
    project = request.spec.project_id
    return project if said_anywhere(table, names_projects, project) else None


FILTER = Filter(
    name="AggregateMultiTenancyIsolation",
    passes=passes,
    stage=lambda _: "aggregates open to the project",
    asked=False,
    from_operator=True,
    steady=True,
    shaped_by=listed_project,
)
