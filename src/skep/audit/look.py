"""One look at everything, and two of them: what both found, unchanged, is a difference."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from skep.audit import above, charges, groups, hosts, interfaces, rows, volumes
from skep.audit.difference import Difference, Kind, Look, confirmed
from skep.audit.holdings import Unnamed, unnamed
from skep.audit.sources import Sources
from skep.database.api import cells
from skep.database.cell import open_attempts
from skep.database.cell.open_attempts import OpenMember
from skep.domain.errors import SkepError
from skep.domain.hosts import HostState
from skep.messages.to_scheduler import ListClaimsReply
from skep.transport.host_states import host_states


async def look_twice(sources: Sources, pause: float) -> Look:
    """Look, and if there is anything to see look again after `pause` seconds; keep what did not change meanwhile."""
    first = await look_once(sources)
    if not first.differences:
        return first
    await asyncio.sleep(pause)
    second = await look_once(sources)
    return Look(
        differences=confirmed(first.differences, second.differences), unread=second.unread, checked=second.checked
    )


async def look_once(sources: Sources) -> Look:
    """Compare everything once. What cannot be read is named, and nothing is concluded from it."""
    found: list[Difference] = []
    unread: dict[str, str] = {}
    checked: Counter[str] = Counter()
    known: ListClaimsReply | None = None
    try:
        known = await sources.claims()
        checked["claims"], checked["slots"] = len(known.claims), len(known.slots)
    except SkepError as error:
        unread["scheduler"] = f"scheduler: {error}"
    states: tuple[HostState, ...] | None = None
    if known is not None:
        states = await host_states(sources.transport)
    members: list[OpenMember] = []
    found += await sources.api.read(above.differences)
    try:
        found += await interfaces.orphans(sources)
    except SkepError as error:
        unread["networks"] = f"networks: {error}"
    held: volumes.Held | None = None
    try:
        held = await volumes.held(sources)
        found += await volumes.orphans(sources, held)
    except SkepError as error:
        unread["volumes"] = f"volumes: {error}"
    for cell in await sources.api.read(cells.every):
        try:
            missing, servers = await rows.mappings_without_row(sources, cell)
            of_cell = [*missing, *await rows.rows_without_mapping(sources, cell)]
            of_cell += await sources.read_cell(cell.uuid, partial(rows.inside, cell=cell))
            if not cell.is_cell0:
                of_cell += await charges.differences(sources, cell)
                of_cell += await interfaces.differences(sources, cell)
                of_cell += [] if held is None else await volumes.differences(sources, cell, held)
                of_cell += await hosts.differences(sources, cell, states)
                members += await sources.read_cell(cell.uuid, partial(open_attempts.seats, cell=cell.uuid))
        except SkepError as error:
            unread[cell.uuid] = f"cell {cell.name}: {error}"
            continue
        found += of_cell
        checked["servers"] += servers
        checked["cells"] += 1
    if known is not None:
        found += [_unnamed("claim_unnamed", one) for one in await unnamed(sources, known.claims)]
        found += groups.missing(members, known)
        found += [_unnamed("slot_unnamed", one) for one in await unnamed(sources, known.slots)]
    found += groups.broken(members)
    return Look(differences=tuple(found), unread=tuple(unread.values()), checked=dict(checked))


def _unnamed(kind: Kind, one: Unnamed) -> Difference:
    holding, mapping = one.holding, one.mapping
    evidence = {
        "host": holding.host,
        "node": holding.key.node,
        "attempt": holding.key.attempt,
        "mapping": None if mapping is None else {"cell": mapping.cell, "attempt": mapping.attempt},
    }
    if kind == "claim_unnamed":
        evidence |= {"role": holding.role, "resources": holding.resources}
    else:
        evidence |= {"group": holding.key.group}
    return Difference(kind=kind, subject=holding.key.instance, evidence=evidence)
