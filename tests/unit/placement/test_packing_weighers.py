"""BestFitWeigher and FragmentationWeigher: hosts fill up, and what is asked for often still finds room."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from skep.domain.builds import Explanation
from skep.domain.cells import HostIntent
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.providers import Provider, Topology
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.placement.deciding import Deciding, Seat
from skep.placement.hosts.mix import MOST_KINDS, Mix
from skep.placement.hosts.view import HostView
from skep.placement.knowledge import Knowledge
from skep.placement.options import PlacementOptions
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from skep.placement.weighers import fragmentation
from skep.scheduler.seating import deciding_of
from skep.simulator.inside import host_with_inside, spec_for_parts

CELL: Any = "cell-1"


def cloud(usage: Any, hosts: int, **settings: Any) -> Knowledge:
    known = Knowledge(SchedulerSettings(**settings))
    nodes: Any = tuple(f"node-{number}" for number in range(hosts))
    known.table.set_cell(CELL, known=True, asserted=True, living=True)
    for number, node in enumerate(nodes):
        known.table.set_intent(HostIntent(node=node, host=f"host-{number}", cell=CELL))
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


def test_nothing_is_learned_from_dry_runs(usage: Any, asked: Any) -> None:
    known = cloud(usage, 2, weighers={"FragmentationWeigher": 1.0})
    for dry_run, noted in ((True, 0), (False, 1)):
        member = Member(InstanceUuid("i"), 1)
        message = SelectDestinations(spec=asked(1), members=(member,), dry_run=dry_run)
        deciding_of(known, SchedulerSettings(), message, seed=0).decide_all(anew=dry_run)
        assert known.table.mix.state().noted == noted


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


def one_host_with_inside(report: Any, *mix: tuple[Any, int]) -> Knowledge:
    """Return a cloud of one host that has learned that these requests come so often."""
    known = Knowledge(SchedulerSettings(weighers={"FragmentationWeigher": 1.0}))
    known.table.set_cell(CELL, known=True, asserted=True, living=True)
    node: Any = "node-0"
    known.table.set_intent(HostIntent(node=node, host=report.host, cell=CELL))
    known.table.set_report(node, CELL, report)
    known.table.set_heard(CELL, (node,), 1)
    for kind, count in mix:
        request = placement_request(kind)
        for _ in range(count):
            known.table.mix.note(request, request.resources, request.nested, known.table.resources)
    known.table.mix.note(object(), {}, None, known.table.resources)
    assert known.table.mix.published.version == 1
    return known


def seated(known: Knowledge, name: str, spec: Any) -> Any:
    seat = Seat(InstanceUuid(name), 1, placement_request(spec))
    Deciding(known, [seat], min_count=1, seed=0).decide_all()
    assert seat.claim is not None
    return seat.claim.allocation


def test_cells_are_balanced_for_servers_that_take_half_of_each() -> None:
    small = spec_for_parts(2, 4096, {"hw:numa_nodes": "1"})
    large = spec_for_parts(24, 49152, {"hw:numa_nodes": "2"})
    for mix, cells in (([(small, 2), (large, 8)], {0, 1}), ([(small, 8)], {0})):
        known = one_host_with_inside(host_with_inside(shared=4, cores=0, huge_mb=0, gpus=0, nics=0), *mix)
        taken = [seated(known, f"small-{number}", small).cells[0].cell for number in range(4)]
        assert set(taken) == cells, mix


def test_a_share_goes_to_the_device_that_is_broken_already() -> None:
    share = spec_for_parts(1, 512, {"resources1:CUSTOM_GPU_MILLI": "300"})
    whole = spec_for_parts(1, 512, {"resources1:CUSTOM_GPU_MILLI": "1000"})
    bare = host_with_inside(gpus=0, nics=0)
    amounts = {"CUSTOM_GPU_MILLI": Inventory(total=1000)}
    providers = tuple(Provider(name=f"gpu-{number}", inventory=amounts) for number in range(3))
    report = replace(
        bare,
        inventory=bare.inventory | {"CUSTOM_GPU_MILLI": Inventory(total=3000)},
        topology=Topology(cells=bare.topology.cells if bare.topology else (), providers=providers),
    )
    known = one_host_with_inside(report, (share, 5), (whole, 5))
    asked: Any = placement_request(whole).nested
    first = known.table.nested.ways(0, asked, 16)[0]
    known.table.nested.hold(0, ("gone", 1), first)
    on_second = seated(known, "share-0", share)
    known.table.nested.release(0, ("gone", 1))
    second = on_second.providers[0].provider
    assert second != first.providers[0].provider
    assert [seated(known, f"share-{number}", share).providers[0].provider for number in (1, 2)] == [second] * 2


@pytest.mark.parametrize("inside", [False, True])
def test_scores_that_are_kept_are_those_of_a_weigher_that_knows_nothing_yet(
    usage: Any, asked: Any, *, inside: bool
) -> None:
    known = cloud(usage, 6, weighers={"FragmentationWeigher": 1.0})
    specs = [asked(vcpus) for vcpus in (1, 2, 3)]
    if inside:
        for number in range(6):
            report = host_with_inside(f"host-{number}", cells=2, shared=8, gpus=0, nics=0)
            known.table.set_report(NodeUuid(f"node-{number}"), CELL, report)
        specs += [spec_for_parts(2, 4096, {"hw:numa_nodes": cells}) for cells in ("1", "2")]
    dice = random.Random(7)
    kept = fragmentation.made(PlacementOptions())
    running: list[Deciding] = []
    for number in range(80):
        if running and dice.random() < 0.4:
            running.pop(dice.randrange(len(running))).drop_all()
        else:
            seat = Seat(InstanceUuid(f"i{number}"), 1, placement_request(dice.choice(specs)))
            running.append(Deciding(known, [seat], min_count=1, seed=0))
            running[-1].decide_all()
        request = placement_request(dice.choice(specs))
        rows = dice.choice((None, np.array(sorted(dice.sample(range(6), 3)))))
        hosts = HostView(known.table, rows)
        fresh = fragmentation.made(PlacementOptions())
        assert kept.scores(hosts, request).tolist() == fresh.scores(hosts, request).tolist()
    assert known.table.mix.published.version > 1
