"""Projects that have aggregates of their own stay in them: `filter_tenant_id...` = project (pre-filter)."""

from __future__ import annotations

from skep.placement.filters.aggregate_multi_tenancy import names_projects
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest


def _of_project(table: HostTable, request: PlacementRequest) -> list[int]:
    """Return the aggregates of the project: one of their keys names it, and it alone."""
    project = request.spec.project_id
    return [
        number
        for number, aggregate in table.aggregates.items()
        if any(names_projects(key) and value == project for key, value in aggregate.metadata.items())
    ]


def chosen(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the pre-filter where the operator enabled it; whether a project must have aggregates, he says too."""
    if not options.limit_tenants_to_placement_aggregate:
        return ()
    required = options.placement_aggregate_required_for_tenants

    def passes(hosts: HostView, request: PlacementRequest) -> Mask:
        own = _of_project(hosts.table, request)
        if not own and not required:
            return hosts.all()
        mask = hosts.none()
        for number in own:
            mask |= hosts.in_aggregate(number)
        return mask

    return (
        Filter(
            name="require_tenant_aggregate",
            passes=passes,
            stage=lambda _: "aggregates of the project",
            asked=False,
            from_operator=True,
            steady=True,
            shaped_by=lambda table, request: tuple(_of_project(table, request)),
        ),
    )
