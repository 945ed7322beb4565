"""BestFitWeigher and FragmentationWeigher: hosts fill up, and what is asked for often still finds room."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.builds import Explanation
from skep.domain.ids import InstanceUuid
from skep.scheduler.deciding import Deciding, Seat
from skep.scheduler.knowledge import Knowledge
from skep.scheduler.mix import MOST_KINDS, Mix
from skep.scheduler.options import PlacementOptions
from skep.scheduler.request import placement_request
from skep.scheduler.settings import SchedulerSettings

CELL: Any = "cell-1"


def cloud(usage: Any, hosts: int, **settings: Any) -> Knowledge:
    known = Knowledge(SchedulerSettings(**settings))
    nodes: Any = tuple(f"node-{number}" for number in range(hosts))
    known.table.set_cell(CELL, known=True, asserted=True, living=True)
    for number, node in enumerate(nodes):
        known.table.set_wish(node, f"host-{number}", CELL, disabled=False, forced_down=False)
        known.table.set_report(node, CELL, usage(f"host-{number}", cpu_ratio=1.0, vcpus=8, memory_mb=16896))
    known.table.set_heard(CELL, nodes, 1)
    return known


def place(known: Knowledge, name: str, spec: Any) -> str | None:
    seat = Seat(InstanceUuid(name), 1, placement_request(spec))
    Deciding(known, [seat], min_count=1, seed=0).decide_all()
    return seat.choice.host if seat.choice else None


@pytest.fixture
def asked(spec: Any, flavor: Any) -> Any:
    def asked_of(vcpus: int) -> Any:
        return spec(flavor=flavor(vcpus=vcpus, memory_mb=1024 * vcpus))

    return asked_of


def test_best_fit_fills_one_host_after_the_other(usage: Any, asked: Any) -> None:
    known = cloud(usage, 4, weighers={"BestFitWeigher": 1.0})
    hosts = [place(known, f"i{number}", asked(2)) for number in range(8)]
    assert hosts[:4] == [hosts[0]] * 4
    assert hosts[4:] == [hosts[4]] * 4


def test_nothing_is_counted_unless_a_weigher_learns(usage: Any, asked: Any) -> None:
    known = cloud(usage, 2, weighers={"BestFitWeigher": 1.0})
    place(known, "i", asked(1))
    assert known.table.mix.state().noted == 0


def test_small_servers_leave_room_for_large_ones_that_are_asked_for(usage: Any, asked: Any) -> None:
    known = cloud(usage, 4, weighers={"FragmentationWeigher": 1.0})
    for number in range(8):
        known.table.mix.note(number, placement_request(asked(8 if number % 2 else 1)).resources, None, {})
    known.table.mix.note("next", {}, None, known.table.resources)
    assert known.table.mix.published.version == 1
    small = {place(known, f"small-{number}", asked(1)) for number in range(8)}
    assert len(small) == 1
    assert all(place(known, f"large-{number}", asked(8)) for number in range(3))


def test_scores_are_what_is_lost(usage: Any, asked: Any) -> None:
    options = PlacementOptions(fragmentation_slot_exponent=1.0, fragmentation_size_exponent=0.0)
    known = cloud(usage, 2, weighers={"FragmentationWeigher": 1.0}, options=options)
    known.table.mix.learns = True
    for number in range(8):
        known.table.mix.note(number, placement_request(asked(2)).resources, None, {})
    seat = Seat(InstanceUuid("i"), 1, placement_request(asked(4)))
    Deciding(known, [seat], min_count=1, seed=0).decide_all(anew=True)
    assert seat.choice is not None
    explanation: Explanation = seat.choice.explanation
    assert explanation.scores[seat.choice.host] == {"FragmentationWeigher": -2.0}


def test_a_mix_is_bounded_and_can_be_written_down() -> None:
    mix, again = Mix(), Mix()
    for number in range(5_000):
        mix.note(number, {"VCPU": 1 + number % 500}, None, {})
    assert len(mix.published.kinds) == MOST_KINDS
    assert len(mix.state().counted) <= 500 + 256
    again.restore(mix.state())
    for one in (mix, again):
        for number in range(2_000):
            one.note(-number, {"VCPU": 7}, None, {})
    assert again.state() == mix.state()
    assert mix.published.kinds[0][0].resources == (("VCPU", 7),)


def test_members_of_one_request_see_one_mix() -> None:
    mix, request = Mix(), object()
    for _ in range(100):
        mix.note(request, {"VCPU": 1}, None, {})
    assert mix.published.version == 0
    mix.note(object(), {"VCPU": 1}, None, {})
    assert mix.published.version == 1
