"""Slots of server groups: where each member is or is going, by group.

A slot lives with its attempt, through ACTIVE. Slots of soft policies are kept the same way, but refuse nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid


class GroupSlot(msgspec.Struct, frozen=True, array_like=True):
    """One attempt of one member on one node."""

    instance: InstanceUuid
    attempt: int
    node: NodeUuid


def member_nodes(slots: Iterable[GroupSlot], instance: InstanceUuid, policy: str) -> dict[NodeUuid, int]:
    """Return how many *other* members each node holds.

    A member that moves has slots of several attempts. Each may still be a guest, so spreading counts them all; keeping
    together follows the latest.
    """
    others = [slot for slot in slots if slot.instance != instance]
    if policy in ("affinity", "soft-affinity"):
        latest: dict[InstanceUuid, GroupSlot] = {}
        for slot in others:
            if slot.instance not in latest or slot.attempt > latest[slot.instance].attempt:
                latest[slot.instance] = slot
        others = list(latest.values())
    counts: dict[NodeUuid, int] = {}
    for _, node in {(slot.instance, slot.node) for slot in others}:
        counts[node] = counts.get(node, 0) + 1
    return counts


def allows(rule: GroupRule, slots: Iterable[GroupSlot], slot: GroupSlot) -> bool:
    """Tell whether a hard policy lets `slot` join the others; a soft one always does."""
    if not rule.has_hard_policy:
        return True
    nodes = member_nodes(slots, slot.instance, rule.policy)
    if rule.policy == "affinity":
        return not nodes or slot.node in nodes
    return nodes.get(slot.node, 0) < rule.max_server_per_host


class GroupIndex:
    """All slots that count: stored ones, and assumed ones as with claims."""

    def __init__(self) -> None:
        self._stored: dict[GroupUuid, frozenset[GroupSlot]] = {}
        self._assumed: dict[GroupUuid, set[GroupSlot]] = {}
        self._groups_of: dict[tuple[str, int], set[GroupUuid]] = {}

    def set_stored(self, group: GroupUuid, slots: Iterable[GroupSlot]) -> None:
        """Take what the group's record holds now."""
        before = self._stored.get(group, frozenset())
        after = frozenset(slots)
        if after:
            self._stored[group] = after
        else:
            self._stored.pop(group, None)
        for slot in before:
            self._groups_of.get((slot.instance, slot.attempt), set()).discard(group)
        for slot in after:
            self._groups_of.setdefault((slot.instance, slot.attempt), set()).add(group)
        for slot in before:
            if not self._groups_of.get((slot.instance, slot.attempt)):
                self._groups_of.pop((slot.instance, slot.attempt), None)
        if group in self._assumed:
            self._assumed[group] -= after

    def assume(self, group: GroupUuid, slot: GroupSlot) -> None:
        """Count a slot that was decided and is on its way into the record."""
        self._assumed.setdefault(group, set()).add(slot)

    def drop(self, group: GroupUuid, slot: GroupSlot) -> None:
        """Count an assumed slot no longer."""
        assumed = self._assumed.get(group)
        if assumed is not None:
            assumed.discard(slot)
            if not assumed:
                del self._assumed[group]

    def assumed(self) -> tuple[tuple[GroupUuid, GroupSlot], ...]:
        """Return every slot that is decided and not yet known to be stored, with its group."""
        return tuple((group, slot) for group, slots in self._assumed.items() for slot in slots)

    def is_stored(self, group: GroupUuid, slot: GroupSlot) -> bool:
        """Tell whether the group's record holds a slot."""
        return slot in self._stored.get(group, frozenset())

    def slots(self, group: GroupUuid) -> frozenset[GroupSlot]:
        """Return all slots of a group that count."""
        return self._stored.get(group, frozenset()) | self._assumed.get(group, set())

    def groups_of(self, instance: InstanceUuid, attempt: int) -> tuple[GroupUuid, ...]:
        """Return the groups in whose records this attempt has slots."""
        return tuple(sorted(self._groups_of.get((instance, attempt), ())))
