"""On which hosts servers are, by asking the mappings and then the cells: the scheduler knows hosts only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from skep.database.api import instance_mappings as mappings
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
    hosts: dict[str, str] = {}
    for cell, members in by_cell.items():
        if cell not in parts.cells:
            continue
        for instance in await parts.cells[cell].read(partial(instances.get_many, uuids=members)):
            if instance.host is not None and instance.deleted_at is None:
                hosts[instance.uuid] = instance.host
    return hosts


async def resolved(parts: Parts, spec: RequestSpec) -> RequestSpec:
    """Put the hosts of other servers, which hints name by id, into the spec."""
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
