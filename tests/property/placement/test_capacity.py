"""As many servers fit as are counted: the engine places them one after the other, and not one more."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.placement.deciding import Deciding, Seat
from skep.placement.knowledge import Knowledge
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from tests.support.samples import examples

CELLS = (CellUuid("cell-0"), CellUuid("cell-1"))
hosts = st.lists(
    st.fixed_dictionaries(
        {
            "vcpus": st.integers(0, 6),
            "ratio": st.sampled_from([0.5, 1.0, 1.5]),
            "memory": st.integers(0, 1024),
            "used": st.integers(0, 4),
            "trait": st.booleans(),
            "cell": st.integers(0, 1),
            "disabled": st.booleans(),
            "heard": st.sampled_from([True, True, False]),
            "east": st.booleans(),
        }
    ),
    max_size=7,
)
specs = st.builds(
    lambda vcpus, memory, trait, zone: RequestSpec(
        project_id=ProjectId("p"),
        user_id=UserId("u"),
        flavor=Flavor(
            flavorid="1",
            name="f",
            vcpus=vcpus,
            memory_mb=memory,
            extra_specs={"trait:CUSTOM_A": "required"} if trait else {},
        ),
        availability_zone=zone,
    ),
    st.integers(1, 3),
    st.sampled_from([64, 200, 512]),
    st.booleans(),
    st.sampled_from([None, None, "nova", "east"]),
)


def cloud_of(made: list[dict[str, Any]]) -> Knowledge:
    known = Knowledge(SchedulerSettings())
    table = known.table
    for cell in CELLS:
        table.set_cell(cell, known=True, asserted=True, living=True)
    for number, one in enumerate(made):
        node, name, cell = NodeUuid(f"n{number}"), f"h{number}", CELLS[one["cell"]]
        table.set_intent(HostIntent(node=node, host=name, cell=cell, disabled=one["disabled"]))
        inventory = {
            "VCPU": Inventory(total=one["vcpus"], allocation_ratio=one["ratio"]),
            "MEMORY_MB": Inventory(total=one["memory"]),
        }
        traits = ("CUSTOM_A",) if one["trait"] else ()
        table.set_report(
            node, cell, HostUsage(host=name, inventory=inventory, used={"VCPU": one["used"]}, traits=traits)
        )
    for code, cell in enumerate(CELLS):
        heard = [n for n, one in enumerate(made) if one["cell"] == code and one["heard"]]
        table.set_heard(cell, tuple(NodeUuid(f"n{number}") for number in heard), 1)
    table.set_aggregate(
        1, [f"h{number}" for number, one in enumerate(made) if one["east"]], {"availability_zone": "east"}
    )
    return known


@settings(max_examples=examples(60))
@given(hosts, specs, st.sampled_from([None, *CELLS]))
def test_so_many_are_placed_as_were_counted(
    made: list[dict[str, Any]], spec: RequestSpec, cell: CellUuid | None
) -> None:
    known = cloud_of(made)
    request = placement_request(spec, cell=cell)
    counted = known.placement.capacity(request)
    zones: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    used_hosts = set()
    for number in range(counted.servers + 1):
        deciding = Deciding(known, [Seat(InstanceUuid(f"i{number}"), 1, request)], min_count=1, seed=0)
        deciding.decide_all()
        choice = deciding.seats[0].choice
        assert (choice is not None) is (number < counted.servers)
        if choice is not None:
            zones[choice.zone] += 1
            cells[choice.cell] += 1
            used_hosts.add(choice.node)
    assert len(used_hosts) == counted.hosts
    assert dict(zones) == {room.name: room.servers for room in counted.zones if room.servers}
    assert dict(cells) == {room.name: room.servers for room in counted.cells if room.servers}
    assert sum(counted.limits.values()) == counted.suitable == sum(counted.sizes.values())
    after = known.placement.capacity(request)
    assert (after.servers, after.left_over) == (0, counted.left_over)


@settings(max_examples=examples(30))
@given(hosts, specs, st.integers(0, 8))
def test_keeping_hosts_free_takes_their_room_and_no_other(
    made: list[dict[str, Any]], spec: RequestSpec, keep: int
) -> None:
    known = cloud_of(made)
    request = placement_request(spec)
    whole, kept = known.placement.capacity(request), known.placement.capacity(request, keep)
    assert len(kept.kept_free) == min(keep, whole.suitable)
    assert kept.suitable == whole.suitable - len(kept.kept_free)
    for name in kept.kept_free:
        known.table.set_intent(
            HostIntent(node=NodeUuid(f"n{name[1:]}"), host=name, cell=CELLS[made[int(name[1:])]["cell"]], disabled=True)
        )
    assert known.placement.capacity(request).servers == kept.servers
