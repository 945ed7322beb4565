"""Claims by node and by attempt: what records hold, and what this scheduler has decided but not yet stored.

A claim that is *assumed* counts at once, so that the next decision sees it; it becomes *stored* when the record that
holds it is known, or is dropped when storing it was refused.

    decided ──assume──> ASSUMED ──record with it──> STORED ──record without it──> gone
                           └───────drop────────> gone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from operator import attrgetter

from skep.domain.claims import Claim
from skep.domain.ids import NodeUuid
from skep.domain.resources import Resources
from skep.placement.hosts.columns import MOST_AMOUNT
from skep.placement.hosts.counting import count
from skep.placement.hosts.table import HostTable

_FEW = 8
"""Fewer claims are counted one by one: two calls of NumPy cost more."""

AttemptKey = tuple[str, int]
"""(instance, attempt)"""
_KEY = attrgetter("instance", "attempt")
"""The key of a claim, for many claims at once."""


class ClaimIndex:
    """All claims that count; keeps the table's claimed columns up to date."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._stored: dict[NodeUuid, dict[AttemptKey, Claim]] = {}
        self._assumed: dict[NodeUuid, dict[AttemptKey, Claim]] = {}
        self._nodes: dict[AttemptKey, tuple[NodeUuid, ...]] = {}

    def set_stored(self, node: NodeUuid, claims: Iterable[Claim]) -> None:
        """Take what the node's record holds now. Raises OverflowError, and takes nothing, where that cannot be true."""
        told = tuple(claims)
        before, assumed = self._stored.get(node, {}), self._assumed.get(node, {})
        after = dict(zip(map(_KEY, told), told, strict=True))
        # Most of what a record holds it held before, as the very objects.
        fresh = {key: claim for key, claim in after.items() if before.get(key) is not claim or key in assumed}
        gone = [key for key in before if key not in after]
        for claim in fresh.values():
            _check(claim)
        for key in gone:
            if key not in assumed:
                self._uncount(node, before[key])
        for key, claim in fresh.items():
            self._recount(node, assumed.pop(key, None) or before.get(key), claim)
        if not assumed:
            self._assumed.pop(node, None)
        if after:
            self._stored[node] = after
        else:
            self._stored.pop(node, None)
        for key in gone:
            self._unlist(node, key)
        for key in fresh:
            self._list(node, key)

    def _recount(self, node: NodeUuid, counted: Claim | None, claim: Claim) -> None:
        """Count a claim that is stored now instead of what counted under its name."""
        if counted is None:
            self._count(node, claim)
        elif counted is not claim and (
            counted.resources != claim.resources
            or counted.allocation != claim.allocation
            or counted.expected_end != claim.expected_end
        ):
            self._uncount(node, counted)
            self._count(node, claim)

    def assume(self, claim: Claim) -> None:
        """Count a claim that was decided and is on its way into the record, instead of one that has its name there."""
        node, key = claim.node, claim.key
        assumed = self._assumed.get(node)
        if assumed is None:
            assumed = self._assumed[node] = {}
        if key in self._nodes:
            counted = assumed.get(key) or self._stored.get(node, {}).get(key)
            if counted is not None:
                self._uncount(node, counted)
            self._list(node, key)
        else:
            self._nodes[key] = (node,)
        assumed[key] = claim
        self._count(node, claim)

    def assume_all(self, claims: Sequence[Claim]) -> None:
        """Count claims that were decided together, each on a host that is known."""
        counted, nodes, by_node = [], self._nodes, self._assumed
        for key, claim in zip(map(_KEY, claims), claims, strict=True):
            if key in nodes or _holds_parts(claim):
                self.assume(claim)
                continue
            node = claim.node
            nodes[key] = (node,)
            assumed = by_node.get(node)
            if assumed is None:
                by_node[node] = {key: claim}
            else:
                assumed[key] = claim
            counted.append(claim)
        count(self._table, counted)

    def drop_all(self, claims: Sequence[Claim]) -> None:
        """Count assumed claims no longer; those that were stored meanwhile stay."""
        if len(claims) < _FEW:
            for claim in claims:
                self.drop(claim)
            return
        uncounted, nodes, by_node = [], self._nodes, self._assumed
        for key, claim in zip(map(_KEY, claims), claims, strict=True):
            node = claim.node
            assumed = by_node.get(node)
            held = assumed.get(key) if assumed is not None else None
            if assumed is None or held is None:
                continue
            if _holds_parts(held) or node in self._stored or len(nodes[key]) > 1:
                self.drop(claim)
                continue
            uncounted.append(held)
            del assumed[key], nodes[key]
            if not assumed:
                del by_node[node]
        count(self._table, uncounted, -1)

    def drop(self, claim: Claim) -> None:
        """Count an assumed claim no longer; one that was stored meanwhile stays."""
        node, key = claim.node, claim.key
        assumed = self._assumed.get(node)
        if assumed is None or key not in assumed:
            return
        counted = assumed.pop(key)
        if not assumed:
            del self._assumed[node]
        self._uncount(node, counted)
        held = self._stored.get(node)
        stored = held.get(key) if held is not None else None
        if stored is not None:
            self._count(node, stored)
        elif len(self._nodes[key]) == 1:
            del self._nodes[key]
        else:
            self._unlist(node, key)

    def has_any(self, keys: Set[AttemptKey]) -> bool:
        """Tell whether one of these attempts has a claim anywhere, stored or assumed."""
        return not self._nodes.keys().isdisjoint(keys)

    def all_of(self, key: AttemptKey) -> tuple[Claim, ...]:
        """Return every stored claim of an attempt, on whatever node."""
        if key not in self._nodes:
            return ()
        nodes = sorted(self._nodes[key])
        return tuple(self._stored[node][key] for node in nodes if key in self._stored.get(node, {}))

    def assumed(self) -> tuple[Claim, ...]:
        """Return every claim that is decided and not yet known to be stored."""
        return tuple(claim for claims in self._assumed.values() for claim in claims.values())

    def of(self, node: NodeUuid) -> tuple[Claim, ...]:
        """Return what the node's record holds."""
        return tuple(self._stored.get(node, {}).values())

    def totals(self, node: NodeUuid) -> Resources:
        """Return the sum of all claims that count on a node."""
        totals: Resources = {}
        claims = self._stored.get(node, {})
        assumed = self._assumed.get(node)
        for claim in ({**claims, **assumed} if assumed else claims).values():
            for name, amount in claim.resources.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def _count(self, node: NodeUuid, claim: Claim) -> None:
        self._table.add_claimed(node, claim.resources)
        if claim.allocation is not None:
            self._table.nested.hold(self._table.row_of[node], claim.key, claim.allocation)
        if claim.expected_end is not None:
            self._table.ends.hold(self._table.row_of[node], claim.key, claim.expected_end)

    def _uncount(self, node: NodeUuid, claim: Claim) -> None:
        self._table.add_claimed(node, claim.resources, -1)
        if claim.allocation is not None:
            self._table.nested.release(self._table.row_of[node], claim.key)
        if claim.expected_end is not None:
            self._table.ends.release(self._table.row_of[node], claim.key)

    def _counted(self, node: NodeUuid, key: AttemptKey) -> Claim | None:
        return self._assumed.get(node, {}).get(key) or self._stored.get(node, {}).get(key)

    def _list(self, node: NodeUuid, key: AttemptKey) -> None:
        nodes = self._nodes.get(key, ())
        if node not in nodes:
            self._nodes[key] = (*nodes, node)

    def _unlist(self, node: NodeUuid, key: AttemptKey) -> None:
        if self._counted(node, key) is not None:
            return
        left = tuple(other for other in self._nodes.get(key, ()) if other != node)
        if left:
            self._nodes[key] = left
        else:
            self._nodes.pop(key, None)


def _holds_parts(claim: Claim) -> bool:
    """Tell whether a claim is more than amounts."""
    return claim.allocation is not None or claim.expected_end is not None


def _check(claim: Claim) -> None:
    for name, amount in claim.resources.items():
        if abs(amount) > MOST_AMOUNT:
            raise OverflowError(f"claims: {name[:255]} is not within {-MOST_AMOUNT} and {MOST_AMOUNT}")
    if claim.expected_end is not None and abs(claim.expected_end) > MOST_AMOUNT:
        raise OverflowError(f"claims: expected_end is not within {-MOST_AMOUNT} and {MOST_AMOUNT}")
