"""Where servers are, by asking the mappings and then the cells: the scheduler knows hosts only."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from skep.database.api import server_groups
from skep.database.hosts_of_servers import hosts_of
from skep.domain.request_specs import RequestSpec, with_host_names
from skep.super_conductor.parts import CELL_SECONDS, Parts


async def resolved(parts: Parts, spec: RequestSpec, members: Collection[str]) -> RequestSpec:
    """Put into the spec what the scheduler cannot know: the hosts of other servers, which hints name by id, and which
    cells hold members of the group. What is returned is for this one selection of `members`; it grows old.
    """
    group = spec.group
    if group is not None and group.is_hard and parts.latest.epoch is not None:
        # The epoch is older than the answer: what gets a cell after it under this epoch has its slot in it.
        epoch = parts.latest.epoch
        cells = await parts.api.read(partial(server_groups.cells_of, uuid=group.uuid, without=members))
        spec = msgspec.structs.replace(spec, group=msgspec.structs.replace(group, cells=cells, epoch=epoch))
    if not spec.same_host and not spec.different_host:
        return spec
    databases = {uuid: access.database for uuid, access in parts.cells.items()}
    named = (*spec.same_host, *spec.different_host)
    return with_host_names(spec, await hosts_of(parts.api, databases, named, within=CELL_SECONDS))
