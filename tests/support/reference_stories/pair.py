"""The engine and the reference side by side: each event is told to both, and both must say the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from skep.domain.builds import Explanation, NoValidHost, Placed
from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.namespaces import Schema
from skep.domain.resources import add
from skep.placement import explain
from skep.placement.deciding import Deciding, Seat
from skep.placement.groups import GroupSlot
from skep.placement.hosts.view import HostView
from skep.placement.knowledge import Knowledge
from skep.placement.registry import pipeline
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings
from skep_lab.reference_scheduler.cloud import ReferenceCloud
from skep_lab.reference_scheduler.deciding import ReferenceScheduler, Verdict


@dataclass(frozen=True, slots=True)
class Guest:
    """One server that was placed."""

    request: PlacementRequest
    claim: Claim


class Pair:
    """Both schedulers. Raises AssertionError where they differ."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Begin with an empty cloud."""
        self.known = Knowledge(settings)
        self.known.epoch = "epoch"
        self.cloud = ReferenceCloud()
        self.reference = ReferenceScheduler(self.cloud, settings)
        self.guests: list[Guest] = []
        self.servers = 0
        """Ever asked for."""
        self._pipeline = pipeline(settings)

    # --- what is told --------------------------------------------------------------------------------

    def report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage | None) -> None:
        """Take what a host said of itself; None: it is forgotten."""
        if usage is None:
            self.known.table.drop_report(node)
            self.cloud.drop_report(node)
        else:
            self.known.table.set_report(node, cell, usage)
            self.cloud.set_report(node, cell, usage)

    def wish(
        self, node: NodeUuid, host: str, cell: CellUuid, *, disabled: bool = False, forced_down: bool = False
    ) -> None:
        """Map a host."""
        intent = HostIntent(node=node, host=host, cell=cell, disabled=disabled, forced_down=forced_down)
        self.known.table.set_intent(intent)
        self.cloud.set_intent(intent)

    def unmap(self, node: NodeUuid) -> None:
        """Forget the mapping of a host."""
        self.known.table.drop_intent(node)
        self.cloud.drop_intent(node)

    def cell(self, cell: CellUuid, **flags: bool) -> None:
        """Change what is known of a cell."""
        self.known.table.set_cell(cell, **flags)
        self.cloud.set_cell(cell, **flags)

    def heard(self, cell: CellUuid, nodes: Iterable[NodeUuid]) -> None:
        """Take the beat of a cell."""
        nodes = tuple(nodes)
        self.known.table.set_heard(cell, nodes, 1)
        self.cloud.set_heard(cell, nodes)

    def aggregate(self, number: int, hosts: Iterable[str], metadata: Mapping[str, str] | None) -> None:
        """Set an aggregate; without metadata it is forgotten."""
        if metadata is None:
            self.known.table.drop_aggregate(number)
            self.cloud.drop_aggregate(number)
        else:
            hosts = tuple(hosts)
            self.known.table.set_aggregate(number, hosts, metadata)
            self.cloud.set_aggregate(number, hosts, metadata)

    def schema(self, namespace: str, schema: Schema) -> None:
        """Register the namespace of another service."""
        self.known.table.joined.set_schema(namespace, schema)
        self.cloud.set_schema(namespace, schema)

    def state(self, namespace: str, key: str, state: Mapping[str, Any] | None) -> None:
        """Set a state of another service; None removes it."""
        self.known.table.joined.set_state(namespace, key, state)
        self.cloud.set_state(namespace, key, state)

    def leave(self, which: int) -> None:
        """Let one of the servers go."""
        if self.guests:
            guest = self.guests.pop(which % len(self.guests))
            self.known.claims.drop(guest.claim)
            group = guest.request.spec.group
            if group is not None:
                slot = GroupSlot(guest.claim.instance, guest.claim.attempt, guest.claim.node)
                self.known.groups.drop(group.uuid, slot)
            self.reference.leave(guest.request, guest.claim)

    def settle(self, which: int) -> None:
        """Let a host count one of the servers itself: its claim becomes part of what the host uses."""
        if not self.guests:
            return
        claim = self.guests[which % len(self.guests)].claim
        host = self.cloud.hosts[claim.node]
        if host.usage is None or claim.key not in host.claims or host.cell is None:
            return
        usage = replace(
            host.usage,
            used=add(host.usage.used, claim.resources),
            failed_builds=0,
            instances=host.usage.instances + 1,
            expected_end=_later(host.usage, claim),
        )
        self.known.claims.drop(claim)
        self.cloud.release(claim)
        self.report(claim.node, host.cell, usage)

    # --- what is asked -------------------------------------------------------------------------------

    def place(self, request: PlacementRequest, *, members: int = 1, min_count: int = 1, seed: int = 0) -> list[Verdict]:
        """Place the members of a request by both, and compare each stage, each choice and all alternates."""
        instances = [InstanceUuid(f"i{self.servers + number}") for number in range(members)]
        self.servers += members
        self.compare_filters(request, instances[0])
        deciding = Deciding(
            self.known, [Seat(instance, 1, request) for instance in instances], min_count=min_count, seed=seed
        )
        deciding.decide_all()
        answers = deciding.answers()
        waits = self.known.group_unknown(request.spec.group) is not None
        claims: list[Claim] = []
        verdicts = (
            [] if waits else self.reference.place(request, instances, min_count=min_count, seed=seed, claimed=claims)
        )
        chosen = [(seat.claim.node if seat.choice is not None and seat.claim else None) for seat in deciding.seats]
        assert chosen == ([None] * members if waits else [verdict.node for verdict in verdicts])
        for seat, verdict in zip(deciding.seats, verdicts, strict=False):
            if seat.choice is not None:
                assert tuple(other.node for other in seat.choice.alternates) == verdict.alternates
                self._compare_stages(request, seat.choice.explanation, verdict)
        if deciding.too_few:
            for seat in deciding.seats:
                deciding.drop(seat)
            assert not any(isinstance(answer, Placed) for answer in answers)
            assert not claims
            refused = next((verdict for verdict in verdicts if verdict.node is None), None)
            if isinstance(answers[0], NoValidHost) and refused is not None:
                self._compare_stages(request, answers[0].explanation, refused)
        self.guests += [Guest(request, claim) for claim in claims]
        return verdicts

    def compare_filters(self, request: PlacementRequest, instance: InstanceUuid) -> None:
        """Compare what each filter by itself says of each mapped host."""
        hosts = [host for host in self.cloud.hosts.values() if host.mapped]
        asked = self.reference.question(request, instance)
        for_member = self.known.placement.for_member(request, instance)
        rows = [self.known.table.row_of[host.node] for host in hosts]
        for entry in self._pipeline.filters:
            expected = [self.reference.passes(entry.name, host, asked) for host in hosts]
            said = [True] * len(hosts)
            if explain.runs(entry, request):
                mask = entry.passes(HostView(self.known.table), for_member)
                said = [bool(mask[row]) for row in rows]
                if entry.fits is not None:
                    assert said == [entry.fits(self.known.table, for_member, row) for row in rows], entry.name
            assert said == expected, entry.name

    def _compare_stages(self, request: PlacementRequest, said: Explanation, verdict: Verdict) -> None:
        """Compare the counts of those stages that removed somebody or that the user asked for."""
        expected, before = [], verdict.considered
        # What a stage is called tells of hosts too: that none of them has a rack.
        for_member = self.known.placement.for_member(request, InstanceUuid("another"))
        for entry in self._pipeline.filters:
            left = verdict.left[entry.name]
            if left != before or (entry.asked and explain.runs(entry, request)):
                expected.append((entry.stage(for_member), left))
            before = left
        assert said.considered == verdict.considered
        assert [(stage.stage, stage.left) for stage in said.stages] == expected

    # --- what always holds ---------------------------------------------------------------------------

    def check(self) -> None:
        """No host has given out more than it had when it gave it; hard policies hold among all guests."""
        for group, policy, most, nodes in self._hard_groups():
            if policy == "affinity":
                assert len(set(nodes)) <= 1, group
            else:
                assert all(nodes.count(node) <= most for node in set(nodes)), group

    def _hard_groups(self) -> list[tuple[str, str, int, list[NodeUuid]]]:
        found: dict[str, tuple[str, str, int, list[NodeUuid]]] = {}
        for guest in self.guests:
            group = guest.request.spec.group
            if group is not None and group.has_hard_policy:
                entry = found.setdefault(group.uuid, (group.uuid, group.policy, group.max_server_per_host, []))
                entry[3].append(guest.claim.node)
        return list(found.values())


def _later(usage: HostUsage, claim: Claim) -> int | None:
    """Return the end that a host tells once it counts the claim's server, too."""
    if max(usage.instances, usage.servers) == 0:
        return claim.expected_end
    if usage.expected_end is None or claim.expected_end is None:
        return None
    return max(usage.expected_end, claim.expected_end)
