"""What a long story is about, by the throw of dice: facts of hosts, metadata of aggregates, requests, settings.

Each story leaves out some of what could vary (swarm testing: Groce and others, 2012). Where everything varies at once
some host is always disabled or full, and what goes wrong only where every host passes is never seen.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule, Policy, SpreadConstraint, SpreadKey
from skep.domain.ids import GroupUuid, ProjectId, UserId
from skep.domain.lifetimes import Lifetime
from skep.domain.request_specs import RequestSpec
from skep.placement.options import PlacementOptions
from skep.placement.settings import DEFAULT_FILTERS, SchedulerSettings
from skep.simulator.traces.flavors import GPU_MILLI
from tests.support.long_stories.facts import CELLS, StoryHost

_POLICIES: dict[GroupUuid, Policy] = {
    GroupUuid("together"): "affinity",
    GroupUuid("apart"): "anti-affinity",
    GroupUuid("near"): "soft-affinity",
}
GROUPS = tuple(_POLICIES)

_KEYS: tuple[SpreadKey, ...] = ("host", "zone", "rack")
_FEATURES = ("zones", "groups", "lifetimes", "ignored hosts", "GPUs", "sizes")
_HOST: dict[str, tuple[Any, ...]] = {
    "cell": CELLS,
    "mapped": (True,) * 6 + (False,),
    "disabled": (False,) * 12 + (True,),
    "reported": (True,) * 12 + (False,),
    "heard": (True,) * 12 + (False,),
    "vcpus": (8, 8, 4),
    "used": (0, 1, 2, 3, 4, 5),
    "gpus": (0, 0, 1, 2, 4),
    "failed_builds": (0,) * 9 + (2,),
    "io_ops": (0, 1, 2),
    "instances": (0, 1, 2, 3),
    "expected_end": (None, 100, 500, 10_000),
}
"""What may be so of a host, the ordinary first."""
METADATA: tuple[tuple[dict[str, str], ...], ...] = (
    ({"availability_zone": "east"},),
    ({"availability_zone": "west"},),
    ({"rack": "r1"},),
    ({"rack": "r2"},),
    ({"cpu_allocation_ratio": "2"}, {"max_instances_per_host": "3"}, {"cpu_weight_multiplier": "-2"}, {}),
)
"""What the aggregate of each number may say. No host is in both of the first two."""


def scheduler_settings(seed: int) -> SchedulerSettings:
    """Return the settings of one story: every second one counts instances, every seventh scales as Nova does."""
    counting = seed % 2 == 1
    return SchedulerSettings(
        filters=(*DEFAULT_FILTERS, *(("NumInstancesFilter", "AggregateNumInstancesFilter") if counting else ())),
        options=PlacementOptions(max_instances_per_host=9 if counting else 50),
        host_subset_size=2 if seed % 5 == 0 else 1,
        normalization="min-max" if seed % 7 == 0 else "host",
        cached_shapes=(2, 5, 64)[seed % 3],
    )


class Draws:
    """Hosts and requests of one story."""

    def __init__(self, dice: Random) -> None:
        """Decide what varies in this story."""
        self._dice = dice
        part = dice.choice((0.1, 0.1, 0.5, 1.0))
        varied = {"cell", "mapped", *(name for name in _HOST if dice.random() < part)}
        self._host = {name: values if name in varied else values[:1] for name, values in _HOST.items()}
        self._features = {"groups", *(name for name in _FEATURES if dice.random() < part)}

    def host(self) -> StoryHost:
        """Return a host of which mostly all is well."""
        return StoryHost(**{name: self._dice.choice(values) for name, values in self._host.items()})

    def change(self, facts: StoryHost) -> StoryHost:
        """Return the same host with one fact thrown anew."""
        name = self._dice.choice([name for name, values in self._host.items() if len(values) > 1])
        return replace(facts, **{name: self._dice.choice(_HOST[name])})

    def request(self) -> RequestSpec:
        """Return what a user may ask for."""
        changes: dict[str, Any] = {}
        if self._has("zones", 0.3):
            changes["availability_zone"] = self._dice.choice(("east", "west", "nowhere"))
        if self._has("groups", 0.6):
            changes["group"] = self._group()
        if self._has("lifetimes", 0.2):
            changes["lifetime"] = Lifetime(0, self._dice.choice((50, 400, 9_000)))
        if self._has("ignored hosts", 0.1):
            changes["ignore_hosts"] = ("h1", "h2")
        return RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=self._flavor(), **changes)

    def _has(self, feature: str, part: float) -> bool:
        return feature in self._features and self._dice.random() < part

    def _flavor(self) -> Flavor:
        choice, specs = self._dice.choice, dict[str, str]()
        if self._has("GPUs", 0.35):
            shares = choice((1, 1, 2))
            specs = {f"resources{number + 1}:{GPU_MILLI}": choice(("300", "700", "1000")) for number in range(shares)}
            specs |= {"group_policy": "isolate"} if shares > 1 else {}
        if not self._has("sizes", 0.9):
            return Flavor(flavorid="1", name="tiny", vcpus=1, memory_mb=256, extra_specs=specs)
        return Flavor(
            flavorid="1",
            name="some",
            vcpus=choice((1, 1, 2, 4, 16, 40)),
            memory_mb=choice((256, 512, 2048)),
            root_gb=choice((0, 1, 20)),
            extra_specs=specs,
        )

    def _group(self) -> GroupRule:
        choice = self._dice.choice
        uuid = choice((*GROUPS, GroupUuid("apart")))
        policy = _POLICIES[uuid]
        return GroupRule(
            uuid=uuid,
            policy=policy,
            max_server_per_host=choice((1, 5, 9)) if policy == "anti-affinity" else 1,
            spread=tuple(
                SpreadConstraint(key=key, max_skew=choice((1, 1, 2)), hard=self._dice.random() < 0.8)
                for key in self._dice.sample(_KEYS, choice((0, 1, 1, 1, 2)))
            ),
        )
