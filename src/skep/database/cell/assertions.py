"""What a cell's rows say is claimed: told to the schedulers when their data is new."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database.cell import reschedules
from skep.database.cell.tables import attempts, instances
from skep.database.stored import load
from skep.domain.claims import Claim, ClaimKey
from skep.domain.instances import BUILD_STATES
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import Slot


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """Open claims of a cell, and the slots of all its members of groups.

    A soft policy's slots refuse nobody, but without them members would be placed as if the group were empty.
    """

    claims: tuple[Claim, ...]
    slots: tuple[Slot, ...]


def read(connection: sa.Connection) -> Owned:
    """Read what the open attempts of this cell own.

    A guest that runs is counted by its host's own report, so only builds under way need a claim; a slot is owned by
    every open attempt.
    """
    found = connection.execute(
        sa.select(
            attempts.c.instance,
            attempts.c.attempt,
            attempts.c.node,
            instances.c.state,
            instances.c.spec,
            (attempts.c.attempt == instances.c.attempt).label("current"),
        )
        .join(instances, instances.c.uuid == attempts.c.instance)
        .where(attempts.c.open)
    )
    claims, slots = [], []
    building = {state.value for state in BUILD_STATES}
    for one in found:
        spec: RequestSpec = load(one.spec, RequestSpec)
        group = spec.group
        if one.state in building and one.current:
            claims.append(
                Claim(
                    instance=one.instance,
                    attempt=one.attempt,
                    node=one.node,
                    resources=spec.resources(),
                    group=group.uuid if group is not None and group.is_hard else None,
                )
            )
        if group is not None:
            slots.append(
                Slot(
                    key=ClaimKey(one.instance, one.attempt, one.node, group.uuid),
                    policy=group.policy,
                    max_server_per_host=group.max_server_per_host,
                )
            )
    return Owned(claims=tuple(claims), slots=tuple(slots))


def refuse(connection: sa.Connection, keys: Sequence[ClaimKey], now: int) -> int:
    """Replace attempts whose claim no longer fits, as far as their host has not passed the point of no return."""
    return sum(reschedules.replace_silent(connection, key.instance, key.attempt, now) for key in keys)
