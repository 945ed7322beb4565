"""How much of the network service one project may have."""

from __future__ import annotations

from typing import Any

from skep.database.api import network_rows
from skep.database.api.network_rows import (
    FLOATING_IPS,
    NETWORKS,
    PORTS,
    ROUTERS,
    SECURITY_GROUP_RULES,
    SECURITY_GROUPS,
    SUBNETS,
    ResourceKind,
)
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.refusals import InTheWay
from skep.standalone.networks.settings import UNLIMITED

OVER_QUOTA = "OverQuota"
"""Type of the refusal of more than a project may have."""

COUNTED: dict[str, ResourceKind[Any]] = {
    "network": NETWORKS,
    "subnet": SUBNETS,
    "port": PORTS,
    "security_group": SECURITY_GROUPS,
    "security_group_rule": SECURITY_GROUP_RULES,
    "router": ROUTERS,
    "floatingip": FLOATING_IPS,
}
"""What has a quota, by its name there."""


def limits(work: NetworkWork, project_id: str) -> dict[str, int]:
    """Return the quotas of a project."""
    return {
        **dict.fromkeys(COUNTED, UNLIMITED),
        **work.settings.quotas,
        **network_rows.quotas_of(work.connection, project_id),
    }


def used(work: NetworkWork, resource: str, project_id: str) -> int:
    """Return how much of a resource a project has."""
    return network_rows.count(work.connection, COUNTED[resource], project_id=project_id)


def check(work: NetworkWork, resource: str, project_id: str, more: int = 1) -> None:
    """Refuse more than a project may have.

    Raises InTheWay.
    """
    limit = limits(work, project_id)[resource]
    if limit != UNLIMITED and used(work, resource, project_id) + more > limit:
        raise InTheWay(OVER_QUOTA, f"Quota exceeded for resources: ['{resource}'].")
