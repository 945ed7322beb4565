"""Where servers are, by asking the mappings and then the cells: the scheduler knows hosts only."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import msgspec

from skep.database.api import instance_mappings as mappings
from skep.database.api import server_groups
from skep.database.cell import instances
from skep.domain.ids import CellUuid
from skep.domain.request_specs import RequestSpec
from skep.super_conductor.parts import Parts


async def hosts_of(parts: Parts, uuids: Sequence[str]) -> dict[str, str]:
    """Return instance -> name of its host for those that have one."""
    found = await parts.api.read(partial(mappings.get_many, instances=uuids))
    by_cell: dict[CellUuid, list[str]] = {}
    for uuid, mapping in found.items():
        if mapping.cell is not None and mapping.deleted_at is None:
            by_cell.setdefault(mapping.cell, []).append(uuid)
    asked = [
        parts.cells[cell].read(partial(instances.get_many, uuids=members))
        for cell, members in by_cell.items()
        if cell in parts.cells
    ]
    return {
        one.uuid: one.host
        for found_there in await asyncio.gather(*asked)
        for one in found_there
        if one.host is not None and one.deleted_at is None
    }


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
    hosts = await hosts_of(parts, (*spec.same_host, *spec.different_host))
    return msgspec.structs.replace(
        spec,
        same_host_names=_named(spec.same_host, hosts) if spec.same_host else None,
        different_host_names=_named(spec.different_host, hosts),
    )


def _named(instances: Iterable[str], hosts: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted({hosts[instance] for instance in instances if instance in hosts}))
