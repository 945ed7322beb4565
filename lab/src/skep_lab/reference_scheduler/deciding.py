"""One decision: throw out who does not fit, sort the others, take the first."""

from __future__ import annotations

from dataclasses import dataclass

from skep.domain.claims import Claim
from skep.domain.groups import GroupRule, SpreadConstraint
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.placement.groups import GroupSlot
from skep.placement.hosts.host_columns import stable_hash
from skep.placement.registry import pipeline
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings
from skep_lab.reference_scheduler.cloud import ReferenceCloud, ReferenceHost
from skep_lab.reference_scheduler.filters import EVEN_IF_FORCED, RULES, domain_of
from skep_lab.reference_scheduler.question import Question
from skep_lab.reference_scheduler.scaling import scaled
from skep_lab.reference_scheduler.weighers import KEYS, SCORES, multiplier

_HASHES = 2**64


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one decision."""

    node: NodeUuid | None
    """None: no host fits."""
    alternates: tuple[NodeUuid, ...]
    considered: int
    left: dict[str, int]
    """By stage, in their order: how many hosts it left."""


class ReferenceScheduler:
    """Decides over a cloud, which its caller keeps up to date. One scheduler, so no share of the hosts is its own."""

    def __init__(self, cloud: ReferenceCloud, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher, KeyError for one that is not said here."""
        chosen = pipeline(settings, called=frozenset(KEYS.values()))
        self.cloud = cloud
        self._subset = settings.host_subset_size
        self._options = settings.options
        self._min_max = settings.normalization == "min-max"
        self._rules = {entry.name: RULES[entry.name] for entry in chosen.filters}
        self._steady = [entry.name for entry in chosen.shared_filters if entry.steady]
        """Those that do not depend on what is free, nor on who else is in the group."""
        self._scores = {
            entry.name: (SCORES[entry.name], configured)
            for entry, configured in (
                *chosen.shared_weighers,
                *chosen.occasional_weighers,
                *chosen.request_weighers,
            )
        }

    def choose(
        self, request: PlacementRequest, instance: InstanceUuid, *, seed: int, first: InstanceUuid | None = None
    ) -> Verdict:
        """Choose for one member, as `Placement.choose` does; `first`: the request's first member, None: this one."""
        asked = self.question(request, instance)
        hosts = [host for host in self.cloud.hosts.values() if host.mapped]
        considered, left = len(hosts), dict[str, int]()
        for name in self._rules:
            hosts = [host for host in hosts if self.passes(name, host, asked)]
            left[name] = len(hosts)
        if not hosts:
            return Verdict(None, (), considered, left)
        salt, dice = stable_hash(f"{seed}/{first or instance}"), stable_hash(f"{seed}/{instance}")
        scores = self._scores_of(hosts, asked)
        ranked = sorted(hosts, key=lambda host: (-scores[host.node], (stable_hash(host.node) - salt) % _HASHES))
        host = self._pick(ranked, request, dice)
        others = [one.node for one in ranked if one.cell == host.cell and one is not host]
        return Verdict(host.node, tuple(others[: request.alternates]), considered, left)

    def place(
        self,
        request: PlacementRequest,
        instances: list[InstanceUuid],
        *,
        min_count: int,
        seed: int,
        claimed: list[Claim] | None = None,
    ) -> list[Verdict]:
        """Choose for each member and count it; fewer than `min_count`: nobody is counted.

        What is counted is added to `claimed`.
        """
        verdicts, taken = [], list[Claim]()
        for instance in instances:
            verdict = self.choose(request, instance, seed=seed, first=instances[0])
            verdicts.append(verdict)
            if verdict.node is not None:
                end = request.spec.expected_end
                claim = Claim(
                    instance=instance,
                    attempt=1,
                    node=verdict.node,
                    resources=request.resources,
                    expected_end=end,
                )
                taken.append(claim)
                self.take(request, taken[-1])
        if len(taken) < min(min_count, len(instances)):
            for claim in taken:
                self.leave(request, claim)
        elif claimed is not None:
            claimed += taken
        return verdicts

    def take(self, request: PlacementRequest, claim: Claim) -> None:
        """Count a decision: its resources, and its place in the server group."""
        self.cloud.claim(claim)
        if request.spec.group is not None:
            self.cloud.join(request.spec.group.uuid, GroupSlot(claim.instance, claim.attempt, claim.node))

    def leave(self, request: PlacementRequest, claim: Claim) -> None:
        """Count it no longer."""
        self.cloud.release(claim)
        if request.spec.group is not None:
            self.cloud.leave(request.spec.group.uuid, GroupSlot(claim.instance, claim.attempt, claim.node))

    def question(self, request: PlacementRequest, instance: InstanceUuid) -> Question:
        """Return what is asked about each host for this member."""
        group = request.spec.group
        if group is None:
            return Question(self.cloud, request, self._options)
        together = group.policy in ("affinity", "soft-affinity")
        members = self.cloud.members(group.uuid, instance, latest_only=together)
        alone = Question(self.cloud, request, self._options)
        excess = {constraint: self._excess(constraint, group, instance, alone) for constraint in group.spread}
        return Question(self.cloud, request, self._options, members, excess)

    def _excess(
        self, constraint: SpreadConstraint, group: GroupRule, instance: InstanceUuid, asked: Question
    ) -> dict[str, int]:
        """Return by how much one more member in each domain would exceed the skew.

        A domain counts if some host in it could be chosen for all that does not depend on what is free.
        """
        cloud, counts = self.cloud, dict[str, int]()
        others = {
            (slot.instance, domain_of(cloud, cloud.hosts[slot.node], constraint.key))
            for slot in cloud.slots.get(group.uuid, [])
            if slot.instance != instance
        }
        for _, domain in others:
            counts[domain] = counts.get(domain, 0) + 1
        hosts = [host for host in cloud.hosts.values() if host.mapped]
        possible = [host for host in hosts if all(self.passes(name, host, asked) for name in self._steady)]
        eligible = {domain_of(cloud, host, constraint.key) for host in possible} - {""}
        least = min((counts.get(domain, 0) for domain in eligible), default=0)
        domains = {domain_of(cloud, host, constraint.key) for host in cloud.hosts.values()} - {""}
        return {domain: counts.get(domain, 0) + 1 - least - constraint.max_skew for domain in domains}

    def passes(self, name: str, host: ReferenceHost, asked: Question) -> bool:
        """Tell whether one filter lets one host through."""
        return (asked.request.is_forced and name not in EVEN_IF_FORCED) or self._rules[name](host, asked)

    def _scores_of(self, hosts: list[ReferenceHost], asked: Question) -> dict[NodeUuid, float]:
        """Return the score of each host that is left."""
        if not self._min_max:
            return {host.node: self.score(host, asked) for host in hosts}
        totals = {host.node: 0.0 for host in hosts}
        if len(hosts) > 1:
            for name, (_, configured) in self._scores.items():
                for host, part in zip(hosts, scaled(name, hosts, asked), strict=True):
                    totals[host.node] += part * multiplier(host, asked, name, configured)
        return totals

    def score(self, host: ReferenceHost, asked: Question) -> float:
        """Return the weighted sum of all scores of one host."""
        total = 0.0
        for name, (score, configured) in self._scores.items():
            total += multiplier(host, asked, name, configured) * score(host, asked)
        return total

    def _pick(self, ranked: list[ReferenceHost], request: PlacementRequest, dice: int) -> ReferenceHost:
        by_node = {host.node: host for host in ranked}
        for node in request.prefer:
            if node in by_node:
                return by_node[node]
        best = ranked[: self._subset]
        return best[dice % len(best)]
