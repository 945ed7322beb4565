"""What is asked for: so many kinds of servers, in the proportions of one kind of load."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from skep.cli.benchmarks.scheduler.hosts import TRAIT_SETS, ZONES, trait, zone
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule, Policy, SpreadConstraint
from skep.domain.ids import GroupUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec

VCPUS = (1, 2, 4, 8, 16)
GIB_PER_VCPU = (1, 2, 4, 8)
MOST_OF_GROUP = 20
"""Servers of one group; the next one begins another."""
UNSCHEDULABLE_PART = 5
"""One request of so many fits nowhere."""
_GIB = 1024
_DRAWN = 1024
"""So many requests are drawn at once: to draw each by itself costs a hundredth of a decision."""


class BenchmarkRequest(msgspec.Struct, frozen=True):
    """One request."""

    spec: RequestSpec
    members: int = 1


Requests = Iterator[BenchmarkRequest]
"""Requests without end."""


def plain(shapes: int, dice: random.Random) -> list[RequestSpec]:
    """Return specs that ask for amounts only."""
    return [_spec(number, dice, {}) for number in range(shapes)]


def small(shapes: int, dice: random.Random) -> list[RequestSpec]:
    """Return specs that ask for so little that a whole group of them fits on one host."""
    return [
        msgspec.structs.replace(_spec(number, dice, {}), flavor=_flavor(number, 1, _GIB * (1 + number % 4), {}))
        for number in range(shapes)
    ]


def various(shapes: int, dice: random.Random) -> list[RequestSpec]:
    """Return specs of which half ask for amounts only, the others for a trait, against one, for a zone or a tier."""
    made = []
    for number in range(shapes):
        extra: dict[str, str] = {}
        wanted = None
        match number % 8:
            case 1:
                extra = {f"trait:{trait(dice.randrange(TRAIT_SETS))}": "required"}
            case 3:
                extra = {f"trait:{trait(dice.randrange(TRAIT_SETS // 2))}": "forbidden"}
            case 5:
                wanted = zone(dice.randrange(ZONES))
            case 7:
                extra = {"aggregate_instance_extra_specs:tier": str(dice.randrange(ZONES))}
        made.append(msgspec.structs.replace(_spec(number, dice, extra), availability_zone=wanted))
    return made


def hopeless(dice: random.Random) -> list[RequestSpec]:
    """Return specs that fit nowhere: too large, with a trait that no host has, in a zone that is none, or all hosts."""
    large = msgspec.structs.replace(_spec(1000, dice, {}), flavor=_flavor(1000, 4096, 64 * _GIB, {}))
    unknown = _spec(1001, dice, {"trait:CUSTOM_NOBODY": "required"})
    nowhere = msgspec.structs.replace(_spec(1002, dice, {}), availability_zone="nowhere")
    memory = msgspec.structs.replace(_spec(1003, dice, {}), flavor=_flavor(1003, 1, 4096 * _GIB, {}))
    return [large, unknown, nowhere, memory]


def any_of(specs: list[RequestSpec], dice: random.Random, members: int = 1) -> Requests:
    """Ask for one kind or another, each as often."""
    requests = [BenchmarkRequest(spec, members) for spec in specs]
    while True:
        yield from dice.choices(requests, k=_DRAWN)


def now_and_then(asking: Requests, specs: list[RequestSpec], dice: random.Random) -> Requests:
    """Ask for one of `specs` instead, once in a while."""
    requests = [BenchmarkRequest(spec) for spec in specs]
    while True:
        yield dice.choice(requests) if dice.randrange(UNSCHEDULABLE_PART) == 0 else next(asking)


def grouped(specs: list[RequestSpec], policy: Policy, dice: random.Random, *spread: SpreadConstraint) -> Requests:
    """Ask for the members of one server group after another."""
    number = 0
    while True:
        number += 1
        group = GroupRule(uuid=GroupUuid(f"group-{number}"), policy=policy, spread=spread)
        spec = msgspec.structs.replace(dice.choice(specs), group=group)
        for _ in range(MOST_OF_GROUP):
            yield BenchmarkRequest(spec)


def _spec(number: int, dice: random.Random, extra_specs: dict[str, str]) -> RequestSpec:
    vcpus = dice.choice(VCPUS)
    flavor = _flavor(number, vcpus, vcpus * dice.choice(GIB_PER_VCPU) * _GIB, extra_specs)
    return RequestSpec(project_id=ProjectId("project"), user_id=UserId("user"), flavor=flavor)


def _flavor(number: int, vcpus: int, memory_mb: int, extra_specs: dict[str, str]) -> Flavor:
    return Flavor(
        flavorid=str(number),
        name=f"flavor-{number}",
        vcpus=vcpus,
        memory_mb=memory_mb,
        root_gb=5 + number % 40,
        extra_specs=extra_specs,
    )
