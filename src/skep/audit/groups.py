"""Server groups: whether each member has its slot, and whether their hosts are as the policy asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skep.audit.difference import Difference
from skep.database.cell.open_attempts import OpenMember
from skep.messages.to_scheduler import ListClaimsReply


def missing(seats: Sequence[OpenMember], known: ListClaimsReply) -> Iterator[Difference]:
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


def broken(seats: Sequence[OpenMember]) -> Iterator[Difference]:
    """Return groups with a hard policy whose members are where it forbids it."""
    by_group: dict[str, list[OpenMember]] = {}
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
