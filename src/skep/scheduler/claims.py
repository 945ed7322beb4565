"""Claims by node and by attempt: what records hold, and what this scheduler has decided but not yet stored.

A claim that is *assumed* counts at once, so that the next decision sees it; it becomes *stored* when the record that
holds it is known, or is dropped when storing it was refused.

    decided ──assume──> ASSUMED ──record with it──> STORED ──record without it──> gone
                           └───────drop────────> gone
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.domain.claims import Claim
from skep.domain.ids import NodeUuid
from skep.domain.resources import Resources
from skep.scheduler.table import HostTable

AttemptKey = tuple[str, int]
"""(instance, attempt)"""


class ClaimIndex:
    """All claims that count; keeps the table's claimed columns up to date."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._stored: dict[NodeUuid, dict[AttemptKey, Claim]] = {}
        self._assumed: dict[NodeUuid, dict[AttemptKey, Claim]] = {}
        self._nodes: dict[AttemptKey, set[NodeUuid]] = {}

    def set_stored(self, node: NodeUuid, claims: Iterable[Claim]) -> None:
        """Take what the node's record holds now."""
        before = self._stored.get(node, {})
        after = {claim.key: claim for claim in claims}
        if after:
            self._stored[node] = after
        else:
            self._stored.pop(node, None)
        assumed = self._assumed.get(node)
        if assumed is not None:
            for key in after.keys() & assumed.keys():
                del assumed[key]
        for key in before.keys() - after.keys():
            self._unlist(node, key)
        for key in after:
            self._nodes.setdefault(key, set()).add(node)
        self._count(node)

    def assume(self, claim: Claim) -> None:
        """Count a claim that was decided and is on its way into the record."""
        self._assumed.setdefault(claim.node, {})[claim.key] = claim
        self._nodes.setdefault(claim.key, set()).add(claim.node)
        self._count(claim.node)

    def drop(self, claim: Claim) -> None:
        """Count an assumed claim no longer; one that was stored meanwhile stays."""
        if self._assumed.get(claim.node, {}).pop(claim.key, None) is not None:
            self._unlist(claim.node, claim.key)
            self._count(claim.node)

    def stored(self, key: AttemptKey) -> Claim | None:
        """Return the stored claim of an attempt on the host where it runs or will run."""
        for node in sorted(self._nodes.get(key, ())):
            claim = self._stored.get(node, {}).get(key)
            if claim is not None and claim.role != "move_source":
                return claim
        return None

    def all_of(self, key: AttemptKey) -> tuple[Claim, ...]:
        """Return every stored claim of an attempt, on whatever node."""
        nodes = sorted(self._nodes.get(key, ()))
        return tuple(self._stored[node][key] for node in nodes if key in self._stored.get(node, {}))

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

    def _count(self, node: NodeUuid) -> None:
        self._table.set_claimed(node, self.totals(node))

    def _unlist(self, node: NodeUuid, key: AttemptKey) -> None:
        if key in self._stored.get(node, {}) or key in self._assumed.get(node, {}):
            return
        nodes = self._nodes.get(key)
        if nodes is not None:
            nodes.discard(node)
            if not nodes:
                del self._nodes[key]
