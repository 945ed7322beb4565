"""`GET /audit`: two looks at everything, and what both of them found."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from skep.admin.audit import above, across
from skep.admin.audit.difference import MEANINGS, Difference, Look, confirmed
from skep.admin.requests import AdminRequest
from skep.admin.services import AdminServices
from skep.database.api import cells
from skep.domain.clock import isoformat
from skep.domain.errors import SkepError

SHOWN = 100
"""Differences of one kind that are listed; all are counted."""


async def show(request: AdminRequest) -> Any:
    """Answer the differences that two looks agree on."""
    request.only_query()
    services = request.services
    look = await look_twice(services)
    counts = Counter(difference.kind for difference in look.differences)
    return {
        "audit": {
            "checked_at": isoformat(services.clock.now()),
            "checked": look.checked,
            "unread": list(look.unread),
            "counts": dict(sorted(counts.items())),
            "differences": _listed(look),
        }
    }


async def look_twice(services: AdminServices) -> Look:
    """Look, and if there is anything to see look again after a pause; keep what did not change meanwhile."""
    first = await look_once(services)
    if not first.differences:
        return first
    await asyncio.sleep(services.audit_pause)
    second = await look_once(services)
    return Look(
        differences=confirmed(first.differences, second.differences), unread=second.unread, checked=second.checked
    )


async def look_once(services: AdminServices) -> Look:
    """Compare everything once. What cannot be read is named, and nothing is concluded from it."""
    found: list[Difference] = []
    unread: dict[str, str] = {}
    checked: Counter[str] = Counter()
    claims: list[across.ClaimSeen] = []
    try:
        claims = await across.claims(services)
        checked["claims"] = len(claims)
    except SkepError as error:
        unread["scheduler"] = f"scheduler: {error}"
    found += await services.database.read(above.differences)
    for cell in await services.database.read(cells.every):
        database = services.cells.get(cell.uuid)
        if database is None:
            unread[cell.uuid] = f"cell {cell.name}: this process was not told of it"
            continue
        try:
            missing, servers = await across.mappings_without_row(services, cell, database)
            of_cell = [*missing, *await across.rows_without_mapping(services, cell, database)]
            of_cell += await database.read(partial(across.open_attempts_of_deleted, cell=cell))
        except SkepError as error:
            unread[cell.uuid] = f"cell {cell.name}: {error}"
            continue
        found += of_cell
        checked["servers"] += servers
        checked["cells"] += 1
    found += await across.unnamed_claims(services, claims, set(unread))
    return Look(differences=tuple(found), unread=tuple(unread.values()), checked=dict(checked))


def _listed(look: Look) -> list[dict[str, Any]]:
    listed: Counter[str] = Counter()
    shown = []
    for difference in sorted(look.differences, key=lambda one: one.key):
        listed[difference.kind] += 1
        if listed[difference.kind] <= SHOWN:
            shown.append(
                {
                    "kind": difference.kind,
                    "meaning": MEANINGS[difference.kind],
                    "subject": difference.subject,
                    "evidence": difference.evidence,
                }
            )
    return shown
