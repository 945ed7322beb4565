"""Server groups: whether each member has its slot, and whether their hosts are as the policy asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.audit.difference import Difference
from skep.database.cell import unreadable
from skep.database.cell.tables import attempts, instances
from skep.database.stored import load
from skep.domain.cells import Cell
from skep.domain.claims import ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid
from skep.domain.instances import Task
from skep.domain.request_specs import RequestSpec
from skep.messages.to_scheduler import ListClaimsReply


class Seat(msgspec.Struct, frozen=True):
    """A member of a group whose current attempt is open on a node."""

    key: ClaimKey
    host: str | None
    rule: GroupRule
    cell: CellUuid


def members(connection: sa.Connection, cell: Cell) -> list[Seat]:
    """Read the members of groups in a cell, with their current attempts."""
    row, attempt = instances.c, attempts.c
    query = (
        sa.select(row.uuid, row.spec, attempt.attempt, attempt.node, attempt.host)
        .join_from(attempts, instances, row.uuid == attempt.instance)
        .where(attempt.open, attempt.attempt == row.attempt, row.task.is_distinct_from(Task.DELETING.value))
    )
    found = []
    for one in connection.execute(query):
        spec = unreadable.or_none(one, _spec)
        if spec is not None and spec.group is not None:
            key = ClaimKey(one.uuid, one.attempt, one.node, spec.group.uuid)
            found.append(Seat(key, one.host, spec.group, cell.uuid))
    return found


def missing(seats: Sequence[Seat], known: ListClaimsReply) -> Iterator[Difference]:
    """Return members of cells that have asserted whose slot is not in their group's record."""
    held = {slot.key for slot in known.slots}
    for seat in seats:
        if seat.key not in held and seat.cell in known.asserted:
            yield Difference(
                kind="slot_missing",
                subject=seat.key.instance,
                evidence={
                    "host": seat.host,
                    "node": seat.key.node,
                    "attempt": seat.key.attempt,
                    "group": seat.key.group,
                    "policy": seat.rule.policy,
                    "max_server_per_host": seat.rule.max_server_per_host,
                    "cell": seat.cell,
                },
            )


def broken(seats: Sequence[Seat]) -> Iterator[Difference]:
    """Return groups with a hard policy whose members are where it forbids it."""
    by_group: dict[str, list[Seat]] = {}
    for seat in seats:
        if seat.rule.has_hard_policy:
            by_group.setdefault(seat.rule.uuid, []).append(seat)
    for group, mine in sorted(by_group.items()):
        on: dict[str, set[str]] = {}
        for seat in mine:
            on.setdefault(seat.host or seat.key.node, set()).add(seat.key.instance)
        rule = mine[0].rule
        if rule.policy == "affinity":
            wrong = on if len(on) > 1 else {}
        else:
            wrong = {host: servers for host, servers in on.items() if len(servers) > rule.max_server_per_host}
        if wrong:
            evidence: dict[str, Any] = {host: sorted(servers) for host, servers in sorted(wrong.items())}
            yield Difference(
                kind="group_policy_broken", subject=group, evidence={"policy": rule.policy, "hosts": evidence}
            )


def _spec(found: Any) -> RequestSpec:
    spec: RequestSpec = load(found.spec, RequestSpec)
    return spec
