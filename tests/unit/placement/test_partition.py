"""Shares of the hosts: all agree on them, and a decision looks there first and everywhere in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.cells import HostIntent
from skep.domain.ids import CellUuid, NodeUuid
from skep.placement.choice import Choice, NoHost
from skep.placement.hosts.partition import Partition
from skep.placement.hosts.table import HostTable
from skep.scheduler.members import FORGET_SECONDS, LAPSE_SECONDS, Members

runs = st.lists(st.uuids().map(str), min_size=2, max_size=6, unique=True)


def table_of(nodes: int) -> HostTable:
    table = HostTable()
    for number in range(nodes):
        table.set_intent(HostIntent(node=NodeUuid(f"node-{number}"), host=f"h{number}", cell=CellUuid("c")))
    return table


def shares(table: HostTable, members: list[str]) -> dict[str, Any]:
    result = {}
    for run in members:
        partition = Partition(table)
        partition.set_members(run, (other for other in members if other != run))
        result[run] = partition.own()
    return result


@given(runs, st.integers(0, 200))
def test_every_host_is_of_exactly_one_share(members: list[str], hosts: int) -> None:
    total = sum(np.asarray(mask, dtype=int) for mask in shares(table_of(hosts), members).values())
    assert np.array_equal(total, np.ones(hosts, dtype=int))


@given(runs)
def test_who_goes_leaves_the_shares_of_the_others_as_they_were(members: list[str]) -> None:
    table = table_of(64)
    before, after = shares(table, members), shares(table, members[1:])
    for run in members[1:]:
        mine = after[run] if after[run] is not None else np.ones(64, dtype=np.bool_)
        assert not (before[run] & ~mine).any()


def test_shares_are_of_about_one_size() -> None:
    sizes = [int(mask.sum()) for mask in shares(table_of(8000), [f"run-{n}" for n in range(8)]).values()]
    assert min(sizes) > 850
    assert max(sizes) < 1150


def test_alone_everything_is_ones_own_and_rows_that_come_later_are_shared_too() -> None:
    table = table_of(3)
    partition = Partition(table)
    assert not partition.set_members("a", ())
    assert partition.own() is None
    assert partition.set_members("a", ("b",))
    assert not partition.set_members("a", ("b",))
    first = partition.own()
    assert first is not None
    assert len(first) == 3
    for number in range(3, 40):
        table.set_intent(HostIntent(node=NodeUuid(f"node-{number}"), host=f"h{number}", cell=CellUuid("c")))
    later = partition.own()
    assert later is not None
    assert len(later) == 40
    assert np.array_equal(first, later[:3])


def test_the_best_of_ones_own_is_chosen_and_all_others_when_nothing_fits_there(
    make_world: Callable[..., Any], spec: Callable[..., Any], flavor: Callable[..., Any]
) -> None:
    world = make_world()
    for number in range(12):
        world.host(f"h{number:02d}", used={"VCPU": 12 - number})
    world.placement.partition.set_members("me", ("you",))
    own = world.placement.partition.own()
    mine = [world.table.hosts[row] for row in np.flatnonzero(own)]
    assert 0 < len(mine) < 12
    chosen = world.choose()
    assert chosen.host == max(mine)
    for host in mine:
        world.table.set_intent(
            HostIntent(node=NodeUuid(f"node-{host}"), host=host, cell=CellUuid("cell-1"), disabled=True)
        )
    spilled = world.choose()
    assert isinstance(spilled, Choice)
    assert spilled.host not in mine
    assert isinstance(world.choose(spec(flavor=flavor(vcpus=1000))), NoHost)


def test_counts_are_those_of_the_whole_cloud_and_preferred_and_forced_hosts_are_not_hindered(
    make_world: Callable[..., Any], spec: Callable[..., Any]
) -> None:
    world = make_world()
    for number in range(12):
        world.host(f"h{number}")
    alone = world.choose().explanation
    world.placement.partition.set_members("me", ("you",))
    own = world.placement.partition.own()
    theirs = [world.table.nodes[row] for row in np.flatnonzero(~own)]
    shared = world.choose()
    assert (shared.explanation.considered, shared.explanation.stages) == (alone.considered, alone.stages)
    assert world.choose(prefer=(theirs[0],)).node == theirs[0]
    forced = theirs[0].removeprefix("node-")
    assert world.choose(spec(forced_host=forced)).node == theirs[0]


def test_members_of_a_soft_group_are_compared_over_the_whole_cloud(
    make_world: Callable[..., Any], spec: Callable[..., Any], group: Callable[..., Any]
) -> None:
    world = make_world()
    for number in range(12):
        world.host(f"h{number}")
    world.placement.partition.set_members("me", ("you",))
    theirs = next(row for row in range(12) if not world.placement.partition.own()[row])
    world.member(world.table.hosts[theirs])
    assert world.choose(spec(group=group("soft-affinity"))).host == world.table.hosts[theirs]


def test_a_scheduler_lives_while_its_record_changes() -> None:
    members = Members()
    members.take("found", None)
    members.take("heard", 10.0)
    assert members.living(10.0) == ("heard",)
    members.take("found", 11.0)
    assert set(members.living(11.0)) == {"found", "heard"}
    assert members.living(10.0 + LAPSE_SECONDS + 0.5) == ("found",)
    members.drop("found")
    assert members.living(11.0) == ("heard",)


def test_a_scheduler_that_was_silent_for_long_is_gone() -> None:
    members = Members()
    members.take("found", None)
    members.take("heard", 10.0)
    assert members.gone(10.0) == []
    assert members.gone(10.5 + FORGET_SECONDS) == ["found", "heard"]
