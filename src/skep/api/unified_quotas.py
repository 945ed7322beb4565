"""Quotas that Keystone's unified limits decide, under the names that quota sets have.

As in Nova only servers, cores and memory have limits of one project; the others are registered for all. What is
neither is unlimited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

from skep.domain.ids import ProjectId
from skep.domain.quotas import UNLIMITED, FixedLimits

OF_PROJECTS: Mapping[str, str] = {"instances": "servers", "cores": "class:VCPU", "ram": "class:MEMORY_MB"}
FOR_ALL: Mapping[str, str] = {
    "metadata_items": "server_metadata_items",
    "injected_files": "server_injected_files",
    "injected_file_content_bytes": "server_injected_file_content_bytes",
    "injected_file_path_bytes": "server_injected_file_path_bytes",
    "key_pairs": "server_key_pairs",
    "server_groups": "server_groups",
    "server_group_members": "server_group_members",
}
"""Names in quota sets -> names in Keystone."""


class LimitsService(Protocol):
    """Who knows the limits, by Keystone's names."""

    async def registered(self) -> Mapping[str, int]:
        """Return what every project may have unless something else is set for it. Raises Unavailable."""
        ...

    async def of_project(self, project: str) -> Mapping[str, int]:
        """Return what is set for one project. Raises Unavailable."""
        ...


class UnifiedQuotas:
    """Reads the limits and says what holds where none is registered."""

    def __init__(
        self, limits: LimitsService, strategy: Literal["require", "ignore"], resources: Collection[str]
    ) -> None:
        """`require`: what is not registered is 0 for `resources`, else unlimited; `ignore`: the other way round."""
        self._limits = limits
        self._unlimited_if_listed = strategy == "ignore"
        self._resources = frozenset(resources)

    async def of(self, project: ProjectId | None, names: Collection[str]) -> FixedLimits:
        """Return the limits of a project (None: of one for which none are set) by `names`. Raises Unavailable."""
        registered = await self._limits.registered()
        own = await self._limits.of_project(project) if project else {}
        found = FixedLimits(dict.fromkeys(names, UNLIMITED))
        for table, has_own in ((OF_PROJECTS, True), (FOR_ALL, False)):
            for name, resource in table.items():
                limit = registered.get(resource)
                if limit is None:
                    limit = UNLIMITED if (resource in self._resources) is self._unlimited_if_listed else 0
                found[name] = own.get(resource, limit) if has_own else limit
        return found
