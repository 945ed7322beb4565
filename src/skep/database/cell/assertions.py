"""What a cell's rows say is claimed: told to the schedulers when their data is new.

A row carries the epoch under which its host was chosen. Only rows of the current epoch are sent to their hosts; one of
an older epoch was chosen from data that is lost, so its place is asserted first and the row then bears the new epoch.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import reschedules, unreadable
from skep.database.cell.instances import spec_of
from skep.database.cell.tables import UNDER_WAY, attempts, instances
from skep.database.constants import constants
from skep.database.stored import load
from skep.domain.claims import Claim, ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.providers import Allocation
from skep.domain.resources import Resources
from skep.domain.states import BUILD_STATES, BUILT_BY_HOST, stored
from skep.messages.to_scheduler import Slot

row = instances.c

PAGE = 500
"""Rows named in one statement."""

ASSERTED = 1000
"""Attempts asserted with one message: their claims and slots are about 500 kB."""


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """Open claims of a cell, and the slots of all its members of groups.

    A soft policy's slots refuse nobody, but without them members would be placed as if the group were empty.
    """

    claims: tuple[Claim, ...]
    slots: tuple[Slot, ...]
    builds: tuple[tuple[InstanceUuid, int], ...] = ()
    """Builds under way that these are part of, with their attempts: the rows that bear the epoch afterwards."""


def read(connection: sa.Connection) -> Owned:
    """Read what the open attempts of this cell own.

    A guest that runs is counted by its host's own report, so only builds under way and the targets of moves need a
    claim; a slot is owned by every open attempt.
    """
    return _owned(connection.execute(_OPEN), claiming=set(stored(BUILD_STATES)))


def slot_of(instance: InstanceUuid, attempt: int, node: NodeUuid, group: GroupRule) -> Slot:
    """Return the place of an attempt in the group of its server."""
    key = ClaimKey(instance, attempt, node, group.uuid)
    return Slot(key=key, policy=group.policy, max_server_per_host=group.max_server_per_host)


def pages(owned: Owned) -> list[Owned]:
    """Cut what is owned into parts that a message can hold, at least one; what belongs to an attempt stays together."""
    parts: dict[tuple[InstanceUuid, int], tuple[list[Claim], list[Slot]]] = {}
    for claim in owned.claims:
        parts.setdefault((claim.instance, claim.attempt), ([], []))[0].append(claim)
    for slot in owned.slots:
        parts.setdefault((slot.key.instance, slot.key.attempt), ([], []))[1].append(slot)
    for build in owned.builds:
        parts.setdefault(build, ([], []))
    builds, keys = set(owned.builds), list(parts)
    return [
        Owned(
            claims=tuple(claim for key in page for claim in parts[key][0]),
            slots=tuple(slot for key in page for slot in parts[key][1]),
            builds=tuple(key for key in page if key in builds),
        )
        for page in (keys[start : start + ASSERTED] for start in range(0, len(keys) or 1, ASSERTED))
    ]


def on_nodes(owned: Owned, nodes: Container[NodeUuid]) -> Owned:
    """Return the claims on these nodes alone."""
    return Owned(claims=tuple(claim for claim in owned.claims if claim.node in nodes), slots=())


def in_groups(owned: Owned, groups: Container[GroupUuid]) -> Owned:
    """Return the slots in these groups alone."""
    return Owned(claims=(), slots=tuple(slot for slot in owned.slots if slot.key.group in groups))


def of_other_epochs(connection: sa.Connection, epoch: str) -> Owned:
    """Read what builds own whose host was chosen under another epoch than `epoch`, some of them at a time.

    A host that has begun counts the build itself, so that only its slot is left to be asserted.
    """
    others = _OPEN.where(
        UNDER_WAY,
        row.state.in_(constants(BUILT_BY_HOST)),
        row.epoch.is_distinct_from(epoch),
        attempts.c.attempt == row.attempt,
        row.task.is_(None),
    )
    return _owned(connection.execute(others.limit(PAGE)), claiming={State.SCHEDULED.value})


def stamp(connection: sa.Connection, builds: Sequence[tuple[InstanceUuid, int]], epoch: str) -> int:
    """Note that claims and slots of these builds are known under `epoch`; return how many still are as they were."""
    stamped = 0
    for start in range(0, len(builds), PAGE):
        mine = sa.tuple_(row.uuid, row.attempt).in_(builds[start : start + PAGE])
        stamped += connection.execute(instances.update().where(mine).values(epoch=epoch)).rowcount
    return stamped


def refuse(connection: sa.Connection, keys: Sequence[ClaimKey], now: int) -> int:
    """Replace attempts whose claim no longer fits, as far as their host has not passed the point of no return."""
    return sum(reschedules.take_from_host(connection, key.instance, key.attempt, now) for key in keys)


_OPEN = (
    sa.select(
        row.uuid,
        attempts.c.attempt,
        attempts.c.node,
        row.state,
        row.spec,
        row.allocation,
        (attempts.c.attempt == row.attempt).label("current"),
        sa.and_(
            attempts.c.role == "move_target", attempts.c.outcome.is_(None), attempts.c.attempt != row.attempt
        ).label("target"),
        attempts.c.resources.label("held"),
        attempts.c.allocation.label("held_parts"),
    )
    .join_from(attempts, instances, row.uuid == attempts.c.instance)
    .where(attempts.c.open)
)


def _owned(found: sa.CursorResult[Any], claiming: set[str]) -> Owned:
    claims, slots, builds = [], [], []
    for one in found:
        if one.current and one.state in _CAN_BE_STAMPED:
            builds.append((one.uuid, one.attempt))
        spec = unreadable.or_none(one, spec_of)
        if spec is None:
            continue
        group = spec.group
        if one.target and one.held is not None:
            claims.append(
                Claim(
                    instance=one.uuid,
                    attempt=one.attempt,
                    node=one.node,
                    role="move_target",
                    resources=load(one.held, Resources),
                    allocation=load(one.held_parts, Allocation) if one.held_parts is not None else None,
                    group=group.uuid if group is not None and group.is_hard else None,
                    expected_end=spec.expected_end,
                )
            )
        if one.current and one.state in claiming:
            claims.append(
                Claim(
                    instance=one.uuid,
                    attempt=one.attempt,
                    node=one.node,
                    resources=spec.resources(),
                    allocation=load(one.allocation, Allocation) if one.allocation is not None else None,
                    group=group.uuid if group is not None and group.is_hard else None,
                    expected_end=spec.expected_end,
                )
            )
        if group is not None:
            slots.append(slot_of(one.uuid, one.attempt, one.node, group))
    return Owned(claims=tuple(claims), slots=tuple(slots), builds=tuple(builds))


_CAN_BE_STAMPED = frozenset(stored(BUILT_BY_HOST | {State.STAGED}))
