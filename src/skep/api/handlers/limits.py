"""Limits: what a project may have and has."""

from __future__ import annotations

from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import quotas, server_groups
from skep.domain.ids import ProjectId

_MAXIMA = {
    "maxServerMeta": "metadata_items",
    "maxPersonality": "injected_files",
    "maxPersonalitySize": "injected_file_content_bytes",
    "maxTotalInstances": "instances",
    "maxTotalCores": "cores",
    "maxTotalRAMSize": "ram",
    "maxTotalKeypairs": "key_pairs",
    "maxServerGroups": "server_groups",
    "maxServerGroupMembers": "server_group_members",
    "maxImageMeta": "metadata_items",
    "maxSecurityGroups": "security_groups",
    "maxSecurityGroupRules": "security_group_rules",
    "maxTotalFloatingIps": "floating_ips",
}
_USED = {"totalCoresUsed": "cores", "totalInstancesUsed": "instances", "totalRAMUsed": "ram"}
_NOT_OURS = ("totalSecurityGroupsUsed", "totalFloatingIpsUsed")
"""The network service counts these; they are shown as 0, as by a Nova that asks Neutron."""


async def show(request: ApiRequest) -> Answer:
    """`GET /limits`; another project's with `tenant_id` is for admins."""
    project = request.context.project_id
    other = request.first("tenant_id")
    if other and other != project:
        request.authorize(rule="os_compute_api:limits:other_project", project_id=other)
        project = ProjectId(other)
    defaults = await request.services.quotas_of(project)

    def unit(connection: Connection) -> tuple[dict[str, int], dict[str, int], int]:
        return (
            quotas.limits(connection, project, defaults=defaults),
            quotas.used(connection, project),
            server_groups.count(connection, project),
        )

    limits, used, groups = await request.services.database.read(unit)
    absolute = {name: limits[resource] for name, resource in _MAXIMA.items()}
    absolute.update((name, used[resource]) for name, resource in _USED.items())
    absolute.update(dict.fromkeys(_NOT_OURS, 0), totalServerGroupsUsed=groups)
    return Answer({"limits": {"rate": [], "absolute": absolute}})
