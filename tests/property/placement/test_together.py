"""Members of one request that are decided together get what they would get one after another, to the last score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.choice import NoHost
from skep.placement.deciding import Deciding, Seat
from skep.placement.knowledge import Knowledge
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import DEFAULT_FILTERS, SchedulerSettings

MOST_CELLS = 3


@dataclass(frozen=True)
class Asked:
    """One request, and how many of the servers that run go before it."""

    vcpus: int
    memory: int
    members: int
    alternates: int
    min_count: int
    zone: str | None
    leaving: int


def usage(name: str, cores: int, used: int, failed: int) -> HostUsage:
    return HostUsage(
        host=name,
        hypervisor_hostname=name,
        inventory={
            VCPU: Inventory(total=cores, allocation_ratio=1.5),
            MEMORY_MB: Inventory(total=cores * 1000),
            DISK_GB: Inventory(total=10 * cores),
        },
        used={VCPU: used, MEMORY_MB: used * 300},
        servers=used,
        failed_builds=failed,
    )


hosts = st.lists(
    st.tuples(
        st.sampled_from((4, 16, 16, 40)),
        st.sampled_from((0, 0, 0, 2, 3)),
        st.sampled_from((0, 0, 0, 1)),
        st.integers(0, MOST_CELLS - 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=24,
)
"""Cores, servers, failed builds, cell, whether it is in the aggregate."""
aggregates = st.sampled_from(
    (
        {},
        {"availability_zone": "east"},
        {"availability_zone": "east", "cpu_weight_multiplier": "-2.5"},
        {"ram_weight_multiplier": "3", "io_ops_weight_multiplier": "1.0"},
        {"max_instances_per_host": "3"},
    )
)
multipliers = st.sampled_from((-1.0, 0.0, 0.5, 1.0))
weighers: st.SearchStrategy[dict[str, float]] = st.one_of(
    st.just(SchedulerSettings().weighers),
    st.fixed_dictionaries(
        dict.fromkeys(("CPUWeigher", "RAMWeigher", "DiskWeigher", "IoOpsWeigher", "NumInstancesWeigher"), multipliers)
    ),
    st.just({"CPUWeigher": -1.0, "RAMWeigher": -1.0}),
    st.just({"BestFitWeigher": 1.0}),
    st.just({}),
)
more_filters = st.sampled_from(
    ((), ("IoOpsFilter",), ("NumInstancesFilter",), ("AggregateNumInstancesFilter",), ("AggregateIoOpsFilter",))
)
settings = st.builds(
    lambda weighers, more, subset: SchedulerSettings(
        weighers=weighers, filters=(*DEFAULT_FILTERS, *more), host_subset_size=subset
    ),
    weighers,
    more_filters,
    st.integers(0, 19).map(lambda dice: 3 if dice == 19 else 1),
)
asked = st.builds(
    Asked,
    vcpus=st.sampled_from((0, 1, 1, 2, 5)),
    memory=st.sampled_from((100, 1000, 3000)),
    members=st.sampled_from((1, 2, 5, 12, 40, 70)),
    alternates=st.integers(0, 4),
    min_count=st.sampled_from((1, 1, 30)),
    zone=st.sampled_from((None, None, None, "east")),
    leaving=st.integers(0, 40),
)


class Together(Deciding):
    """Decides even two members together."""

    fewest_together = 2


class OneByOne(Deciding):
    """Decides no members together."""

    def _decide_together(self, seats: list[Seat]) -> int:  # noqa: ARG002  # the signature of who does
        return 0


Made = list[tuple[int, int, int, int, bool]]


def cloud(chosen: SchedulerSettings, made: Made, metadata: dict[str, str]) -> Knowledge:
    known = Knowledge(chosen)
    known.epoch = "epoch"
    table = known.table
    table.set_aggregate(1, [f"h{number}" for number, host in enumerate(made) if host[4]], metadata)
    for number in range(MOST_CELLS):
        table.set_cell(CellUuid(f"c{number}"), known=True, asserted=True)
    heard: dict[CellUuid, list[NodeUuid]] = {}
    for number, (cores, used, failed, cell_number, _) in enumerate(made):
        node, cell = NodeUuid(f"n{number}"), CellUuid(f"c{cell_number}")
        table.set_intent(HostIntent(node=node, host=f"h{number}", cell=cell, disabled=number % 9 == 8))
        table.set_report(node, cell, usage(f"h{number}", cores, used, failed))
        heard.setdefault(cell, []).append(node)
    for cell, nodes in heard.items():
        known.take_beat(cell, "one", tuple(nodes), 1, 0.0)
    return known


def request_of(one: Asked) -> PlacementRequest:
    flavor = Flavor(flavorid="f", name="f", vcpus=one.vcpus, memory_mb=one.memory, root_gb=1)
    spec = RequestSpec(project_id=ProjectId("p"), user_id=UserId("u"), flavor=flavor, availability_zone=one.zone)
    return placement_request(spec, alternates=one.alternates)


def said(seat: Seat) -> Any:
    if isinstance(seat.no, NoHost):
        return (seat.no.considered, seat.no.stages, seat.no.reason)
    return (seat.no, msgspec.to_builtins(seat.choice), seat.claim)


def columns(known: Knowledge) -> list[Any]:
    table = known.table
    numbers: list[Any] = [table.claimed_servers]
    for amounts in table.resources.values():
        numbers += [amounts.claimed, amounts.free, amounts.share]
    return [column[: table.size].tolist() for column in numbers]


@given(settings, hosts, aggregates, st.lists(asked, min_size=1, max_size=4))
def test_members_decided_together_get_what_they_would_get_one_after_another(
    chosen: SchedulerSettings,
    made: Made,
    metadata: dict[str, str],
    story: list[Asked],
) -> None:
    together, single = cloud(chosen, made, metadata), cloud(chosen, made, metadata)
    living: list[Claim] = []
    number = 0
    for one in story:
        leaving, living = living[: one.leaving], living[one.leaving :]
        together.claims.drop_all(leaving)
        for claim in leaving:
            single.claims.drop(claim)
        instances = [InstanceUuid(f"i{number + member}") for member in range(one.members)]
        number += one.members
        both = []
        for known, way in ((together, Together), (single, OneByOne)):
            request = request_of(one)
            seats = [Seat(instance, 1, request) for instance in instances]
            deciding = way(known, seats, min_count=one.min_count, seed=0)
            deciding.decide_all()
            both.append(deciding)
        assert [said(seat) for seat in both[0].seats] == [said(seat) for seat in both[1].seats]
        assert [type(answer) for answer in both[0].answers()] == [type(answer) for answer in both[1].answers()]
        assert columns(together) == columns(single)
        assert sorted(map(repr, together.claims.assumed())) == sorted(map(repr, single.claims.assumed()))
        if both[0].too_few:
            for deciding in both:
                deciding.drop_all()
        else:
            living += [seat.claim for seat in both[0].seats if seat.claim is not None]
    assert np.array_equal(columns(together), columns(single))
