"""One long story: an engine that hears each change of the facts, held against engines made afresh of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from skep.domain.builds import Explanation, NotReady
from skep.domain.claims import Claim
from skep.domain.ids import GroupUuid, InstanceUuid
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import MEMORY_MB, VCPU
from skep.placement.choice import Choice, NoHost
from skep.placement.deciding import Deciding, Seat
from skep.placement.groups import GroupSlot
from skep.placement.knowledge import Knowledge
from skep.placement.request import placement_request
from tests.support.long_stories import draws
from tests.support.long_stories.facts import Facts, empty_engine, node_of

_MOST_HOSTS = 40
_ASKED = 3
"""So many requests are asked for at each step, of few there are: what is kept of a request is what may be stale."""


class _Together(Deciding):
    """Decides even few members together."""

    fewest_together = 3


class _OneByOne(Deciding):
    """Decides no members together."""

    def _decide_together(self, seats: list[Seat]) -> int:  # noqa: ARG002  # the signature of who does
        return 0


class Story:
    """The story of one seed. Always the same."""

    def __init__(self, seed: int) -> None:
        """Begin with a few hosts that nobody has claimed anything of."""
        self.facts = Facts()
        self._seed = seed
        self._dice = Random(seed)
        self._draws = draws.Draws(self._dice)
        self._settings = draws.scheduler_settings(seed)
        self._kept = empty_engine(self._settings)
        self._requests = [self._draws.request() for _ in range(self._dice.choice((_ASKED, _ASKED, 6, 12)))]
        self._servers = 0
        """Ever thought of."""
        happenings: tuple[tuple[int, Callable[[], None]], ...] = (
            (25, self._change_host),
            (5, self._add_host),
            (8, self._set_aggregate),
            (13, self._claim),
            (15, self._place),
            (14, self._leave),
            (10, self._join_group),
            (10, self._leave_group),
        )
        self._happenings = [happenings[0], *(one for one in happenings[1:] if self._dice.random() < 0.8)]
        """How often each thing happens, of those that happen in this story."""
        for _ in range(self._dice.choice((4, 8, 25))):
            self._add_host()

    # --- what happens --------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let a few things change."""
        for _ in range(self._dice.choice((1, 1, 1, 2, 5))):
            weights, ways = zip(*self._happenings, strict=True)
            self._dice.choices(ways, weights)[0]()
        if self._dice.random() < 0.05:
            self._requests[self._dice.randrange(len(self._requests))] = self._draws.request()

    def _change_host(self) -> None:
        name = self._some_host()
        self.facts.hosts[name] = self._draws.change(self.facts.hosts[name])
        self._tell(name)

    def _add_host(self) -> None:
        if len(self.facts.hosts) < _MOST_HOSTS:
            name = f"h{len(self.facts.hosts)}"
            self.facts.hosts[name] = self._draws.host()
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.facts.tell_host(self._kept, name)
        self.facts.tell_beats(self._kept)

    def _set_aggregate(self) -> None:
        number = self._dice.randrange(len(draws.METADATA))
        other_zone = self.facts.aggregates.get(1 - number, ((), {}))[0]
        names = [*self.facts.hosts, f"h{_MOST_HOSTS - 1}"]
        inside = tuple(name for name in names if self._dice.random() < 0.4 and name not in other_zone)
        metadata = self._dice.choice(draws.METADATA[number])
        self.facts.aggregates[number] = (inside, metadata)
        self._kept.table.set_aggregate(number, inside, metadata)

    def _claim(self) -> None:
        """Let another scheduler claim a host, whether it fits or not."""
        resources = {VCPU: self._dice.choice((1, 2, 4)), MEMORY_MB: 256}
        end = self._dice.choice((None, 300, 2000))
        node = node_of(self._some_host())
        self._assume(Claim(instance=self._server(), attempt=1, node=node, resources=resources, expected_end=end))

    def _place(self) -> None:
        """Place a server and claim what it takes, GPUs too, and its place in its group."""
        spec, instance = self._some_request(), self._server()
        request = placement_request(spec)
        chosen = self._kept.placement.choose(request, instance, seed=0)
        if not isinstance(chosen, Choice):
            return
        node, allocation = chosen.node, self._kept.placement.allocation(request, chosen.node)
        self._assume(Claim(instance=instance, attempt=1, node=node, resources=request.resources, allocation=allocation))
        if spec.group is not None:
            self._join(spec.group.uuid, GroupSlot(instance, 1, node))

    def _assume(self, claim: Claim) -> None:
        self.facts.claims[claim.key] = claim
        self._kept.claims.assume(claim)

    def _leave(self) -> None:
        if self.facts.claims:
            key = self._dice.choice(list(self.facts.claims))
            self._kept.claims.drop(self.facts.claims.pop(key))

    def _join_group(self) -> None:
        self._join(self._dice.choice(draws.GROUPS), GroupSlot(self._server(), 1, node_of(self._some_host())))

    def _join(self, group: GroupUuid, slot: GroupSlot) -> None:
        self.facts.slots.append((group, slot))
        self._kept.groups.assume(group, slot)

    def _leave_group(self) -> None:
        if self.facts.slots:
            group, slot = self.facts.slots.pop(self._dice.randrange(len(self.facts.slots)))
            self._kept.groups.drop(group, slot)

    def _some_host(self) -> str:
        return self._dice.choice(list(self.facts.hosts))

    def _some_request(self) -> RequestSpec:
        return self._dice.choice(self._requests)

    def _server(self) -> InstanceUuid:
        self._servers += 1
        return InstanceUuid(f"i{self._servers}")

    # --- what is asked -------------------------------------------------------------------------------

    def check(self) -> None:
        """Ask the engine that was told step by step and one made afresh. Raises AssertionError where they differ."""
        afresh = self.facts.engine(self._settings)
        for spec in self._dice.sample(self._requests, _ASKED):
            self._check_choice(afresh, spec)
        if self._dice.random() < 0.3:
            self._check_members(afresh, self._some_request())

    def _check_choice(self, afresh: Knowledge, spec: RequestSpec) -> None:
        request = placement_request(spec, alternates=self._dice.choice((0, 2, 50)))
        instance = InstanceUuid(f"x{self._dice.randrange(4)}")
        said = [_said(known.placement.choose(request, instance, seed=0)) for known in (self._kept, afresh)]
        self._agree(spec, *said)

    def _check_members(self, afresh: Knowledge, spec: RequestSpec) -> None:
        """Compare members decided together with members that a new engine decides one after another."""
        request = placement_request(spec, alternates=self._dice.choice((0, 2, 5)))
        instances = [InstanceUuid(f"q{number}") for number in range(self._dice.choice((3, 7, 20)))]
        said = []
        for known, way in ((self._kept, _Together), (afresh, _OneByOne)):
            seats = [Seat(instance, 1, request) for instance in instances]
            deciding = way(known, seats, min_count=1, seed=0)
            deciding.decide_all()
            said.append([_said(seat.choice if seat.choice is not None else seat.no) for seat in seats])
            deciding.drop_all()
        self._agree(spec, *said)

    def _agree(self, spec: RequestSpec, kept: Any, afresh: Any) -> None:
        assert kept == afresh, f"story {self._seed}, {spec}: kept in step {kept}, made afresh {afresh}"


def tell(seed: int, steps: int) -> None:
    """Tell so many steps of the story of a seed. Raises AssertionError where the engines differ."""
    story = Story(seed)
    for _ in range(steps):
        story.go_on()
        story.check()


def _said(answer: Choice | NoHost | NotReady | None) -> tuple[Any, ...]:
    """Return all that is said to users and operators, scores to nine digits: sums may round otherwise."""
    if not isinstance(answer, Choice | NoHost):
        return (answer,)
    why = answer.explanation
    told = (why.considered, why.stages, _rounded(why), why.verdict, why.could_hold, why.not_reported, why.rejected)
    if isinstance(answer, Choice):
        return (answer.node, answer.zone, answer.alternates, *told)
    misses = [(miss.stage, miss.lacks) for miss in why.nearest]
    return (answer.reason, answer.stages, *told, misses, why.changes)


def _rounded(why: Explanation) -> dict[str, dict[str, float]]:
    return {host: {weigher: round(score, 9) for weigher, score in parts.items()} for host, parts in why.scores.items()}
