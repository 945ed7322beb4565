"""What a cell owns, cut into messages: what belongs to an attempt stays together, nothing is lost or told twice."""

from __future__ import annotations

from skep.database.cell import assertions
from skep.database.cell.assertions import ASSERTED, Owned
from skep.domain.claims import Claim, ClaimKey
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import Slot

GROUP, OTHER = GroupUuid("g"), GroupUuid("h")


def owned_by(attempts: int) -> Owned:
    claims, slots, builds = [], [], []
    for number in range(attempts):
        instance, node = InstanceUuid(f"i{number}"), NodeUuid(f"n{number % 3}")
        if number % 2 == 0:
            claims.append(Claim(instance=instance, attempt=1, node=node, resources={"VCPU": 1}))
            builds.append((instance, 1))
        if number % 3 == 0:
            slots.append(Slot(key=ClaimKey(instance, 1, node, (GROUP, OTHER)[number % 2]), policy="affinity"))
    return Owned(claims=tuple(claims), slots=tuple(slots), builds=tuple(builds))


def test_nothing_is_one_page_all_the_same() -> None:
    assert assertions.pages(owned_by(0)) == [Owned(claims=(), slots=())]


def test_pages_hold_everything_once_and_attempts_whole() -> None:
    owned = owned_by(3 * ASSERTED)
    pages = assertions.pages(owned)
    assert len(pages) == 2
    assert sorted(claim.instance for page in pages for claim in page.claims) == sorted(c.instance for c in owned.claims)
    assert {slot.key for page in pages for slot in page.slots} == {slot.key for slot in owned.slots}
    assert sorted(build for page in pages for build in page.builds) == sorted(owned.builds)
    seen: set[InstanceUuid] = set()
    for page in pages:
        mine = {claim.instance for claim in page.claims} | {slot.key.instance for slot in page.slots}
        assert mine == {build for build, _ in page.builds} | mine
        assert not mine & seen
        assert len(mine) <= ASSERTED
        seen |= mine


def test_parts_of_lost_records_name_these_alone() -> None:
    owned = owned_by(12)
    claims = assertions.on_nodes(owned, (NodeUuid("n0"),))
    assert {claim.node for claim in claims.claims} == {"n0"}
    assert claims.slots == ()
    slots = assertions.in_groups(owned, (GROUP,))
    assert {slot.key.group for slot in slots.slots} == {GROUP}
    assert slots.claims == ()
