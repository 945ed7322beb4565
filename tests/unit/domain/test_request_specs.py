"""What of a wish follows from the flavor of its server: a resize leaves nothing of the flavor before it."""

from __future__ import annotations

import msgspec

from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule, SpreadConstraint
from skep.domain.ids import GroupUuid, ProjectId, UserId
from skep.domain.moves import Size
from skep.domain.request_specs import RequestSpec
from skep.domain.spread import spread_group

PLAIN = Flavor(flavorid="1", name="plain", vcpus=1, memory_mb=512)
ZONED = msgspec.structs.replace(PLAIN, flavorid="2", extra_specs={"spread:zone": "1"})
RACKED = msgspec.structs.replace(PLAIN, flavorid="3", extra_specs={"spread:rack": "2:soft", "spread:zone": "5"})
WRONG = msgspec.structs.replace(PLAIN, flavorid="4", extra_specs={"spread:zone": "none"})
ZONE = SpreadConstraint(key="zone", max_skew=1)
GROUP = GroupRule(uuid=GroupUuid("g"), policy="soft-affinity")


def spec_of(flavor: Flavor, hinted: tuple[SpreadConstraint, ...] = (), **hints: object) -> RequestSpec:
    group = spread_group(GROUP, hinted, flavor.extra_specs)
    return RequestSpec(
        project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, group=group, scheduler_hints=dict(hints)
    )


def test_the_spread_of_a_flavor_goes_with_it() -> None:
    after = Size(flavor=PLAIN).spec(spec_of(ZONED))
    assert after == spec_of(PLAIN)
    assert after.group == GROUP


def test_the_spread_of_a_flavor_comes_with_it() -> None:
    assert Size(flavor=RACKED).spec(spec_of(ZONED)) == spec_of(RACKED)
    assert Size(flavor=ZONED).spec(spec_of(PLAIN)) == spec_of(ZONED)


def test_the_spread_of_the_hint_stays() -> None:
    before = spec_of(PLAIN, (ZONE,), spread="zone:1")
    after = Size(flavor=RACKED).spec(before)
    assert after.group is not None
    assert after.group.spread == (SpreadConstraint(key="rack", max_skew=2, hard=False), ZONE)
    assert Size(flavor=PLAIN).spec(after) == before, "a revert brings it back"


def test_without_a_group_no_flavor_spreads_anything() -> None:
    alone = msgspec.structs.replace(spec_of(PLAIN), group=None)
    assert Size(flavor=ZONED).spec(alone).group is None


def test_a_spread_that_is_none_changes_nothing() -> None:
    after = Size(flavor=WRONG).spec(spec_of(ZONED))
    assert (after.flavor, after.group) == (WRONG, spec_of(ZONED).group)
