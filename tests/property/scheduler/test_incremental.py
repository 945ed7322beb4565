"""What is kept up to date equals what is worked out afresh: claims, batches of records, the ranking of hosts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage, Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory
from skep.placement.claims import ClaimIndex
from skep.placement.hosts.host_columns import stable_hash
from skep.placement.hosts.levels import Levels
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.ranking import ranking, standing
from skep.placement.ranking.order import RowOrder
from skep.placement.ranking.ranking import NOBODY, Among, Fitting, Ranking
from skep.placement.ranking.shapes import Shapes
from skep.placement.registry import pipeline
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import SchedulerSettings
from skep.scheduler.records import BEATS, CELLS, COMPUTE, OPERATOR, BeatValue, CellValue, ComputeValue
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Key
from tests.support.samples import examples

NODES = tuple(NodeUuid(f"n{number}") for number in range(5))
CELL = CellUuid("c")

claims = st.builds(
    lambda instance, attempt, node, amounts, end: Claim(
        instance=InstanceUuid(f"i{instance}"), attempt=attempt, node=node, resources=amounts, expected_end=end
    ),
    st.integers(0, 3),
    st.integers(1, 2),
    st.sampled_from(NODES[:2]),
    st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_X"]), st.integers(0, 5), min_size=1),
    st.sampled_from([3, 5, 8, None]),
)
steps = st.one_of(
    st.tuples(st.sampled_from(["assume", "drop"]), claims),
    st.tuples(st.just("stored"), st.tuples(st.sampled_from(NODES[:2]), st.lists(claims, max_size=4))),
)


@given(st.lists(steps, max_size=40))
def test_counted_claims_are_the_sum_of_those_that_count(story: list[tuple[str, Any]]) -> None:
    table = HostTable()
    index = ClaimIndex(table)
    for step, what in story:
        if step == "assume":
            index.assume(what)
        elif step == "drop":
            index.drop(what)
        else:
            node, held = what
            index.set_stored(node, [claim for claim in held if claim.node == node])
    for node in NODES[:2]:
        row = table.row_of.get(node)
        totals = index.totals(node)
        for name, amounts in table.resources.items():
            assert row is None or amounts.claimed[row] == totals.get(name, 0)
        assert row is not None or not totals
        counted = {claim.key: claim.expected_end for claim in (*index.of(node), *index.assumed()) if claim.node == node}
        ends = [math.inf if end is None else end for end in counted.values()]
        assert row is None or HostView(table, np.array([row])).occupied_until.tolist() == [max(ends, default=-math.inf)]


usages = st.builds(
    lambda vcpus, used, traits, failed, hypervisor, end: (vcpus, used, traits, failed, hypervisor, end),
    st.integers(0, 8),
    st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB"]), st.integers(0, 9)),
    st.sets(st.sampled_from(["A", "B", "C"])).map(lambda names: tuple(sorted(names))),
    st.integers(0, 2),
    st.sampled_from(["", "one", "two"]),
    st.sampled_from([None, 3, 5]),
)


def value_of(node: NodeUuid, facts: tuple[Any, ...] | None) -> ComputeValue:
    if facts is None:
        return ComputeValue(cell=CELL)
    vcpus, used, traits, failed, hypervisor, end = facts
    usage = HostUsage(
        host=f"host-{node}",
        inventory={"VCPU": Inventory(total=vcpus), "MEMORY_MB": Inventory(total=512)},
        used=used,
        traits=traits,
        failed_builds=failed,
        hypervisor_hostname=hypervisor,
        instances=len(used),
        expected_end=end,
    )
    return ComputeValue(cell=CELL, report=Report(incarnation=1, seq=1, usage=usage))


def said(states: HostStates) -> dict[str, Any]:
    table = states.table
    return {
        node: (
            bool(table.reported[row]),
            int(table.failed_builds[row]),
            sorted(name for name in ("one", "two") if row in table.rows_of_hypervisor(name)),
            {
                name: (
                    int(column.capacity[row]),
                    int(column.used[row]),
                    int(column.free[row]),
                    float(column.share[row]),
                )
                for name, column in table.resources.items()
                if column.capacity[row] or column.used[row]
            },
            HostView(table, np.array([row])).occupied_until.tolist(),
            [trait for trait in "ABC" if table.traits.having(trait, np.array([row]))[0]],
        )
        for row, node in enumerate(table.nodes)
    }


@given(st.lists(st.lists(st.tuples(st.sampled_from(NODES), st.none() | usages), max_size=8), max_size=6))
def test_records_taken_by_the_batch_leave_what_records_taken_one_by_one_leave(batches: list[list[Any]]) -> None:
    batched, single = HostStates(SchedulerSettings()), HostStates(SchedulerSettings())
    generation = 0
    for batch in batches:
        fresh = []
        for node, facts in batch:
            generation += 1
            fresh.append((Key(COMPUTE, node), generation, value_of(node, facts)))
        batched.take_all(fresh, 0.0)
        for key, number, value in fresh:
            single.take(key, number, value, 0.0)
    assert said(batched) == said(single)
    for node in NODES:
        assert batched.held(Key(COMPUTE, node)) == single.held(Key(COMPUTE, node))


@given(
    st.lists(st.tuples(st.sampled_from(["VCPU", "CUSTOM_X"]), st.integers(1, 9)), max_size=6),
    st.sampled_from(["VCPU", "CUSTOM_X"]),
    st.integers(-3, 12),
    st.integers(-3, 12),
)
def test_who_asks_for_an_amount_is_told_where_it_fits_only_before_or_only_after(
    asked: list[tuple[str, int]], name: str, before: int, after: int
) -> None:
    levels = Levels()
    gone = levels.watch({"VCPU": 11, "CUSTOM_X": 3})
    askers = [(one, amount, levels.watch({one: amount})) for one, amount in asked]
    levels.forget({"VCPU": 11, "CUSTOM_X": 3}, gone)
    told = [one == name and (before >= amount) != (after >= amount) for one, amount, _ in askers]
    assert levels.cross(name, 7, before, after) is any(told)
    assert [crossed.rows == {7} for _, _, crossed in askers] == told
    one_row = (np.array([7]), np.array([before]), np.array([after]))
    assert levels.cross_all(name, *one_row).tolist() == [any(told)]
    assert not gone.rows
    assert not any(told) or min(before, after) < levels.highest[name]


@given(usages, st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB"]), st.integers(1, 9)))
def test_a_weigher_gives_one_row_what_it_gives_many(facts: tuple[Any, ...], claimed: dict[str, int]) -> None:
    states = HostStates(SchedulerSettings())
    states.take(Key(COMPUTE, NODES[0]), 1, value_of(NODES[0], facts), 0.0)
    states.claims.assume(Claim(instance=InstanceUuid("i"), attempt=1, node=NODES[0], resources=claimed))
    for weigher, _ in pipeline(SchedulerSettings()).shared_weighers:
        assert weigher.of_row is not None
        assert weigher.scores(HostView(states.table), requests[0]).tolist() == [weigher.of_row(states.table)(0)]


def naive(scores: dict[int, float], hashes: list[int], salt: int) -> list[int]:
    """Return rows, best first; equal ones from the server's place in the order of hashes, and round."""
    return sorted(scores, key=lambda row: (-scores[row], (hashes[row] - salt) % 2**64))


HASHES = [stable_hash(f"n{number}") for number in range(2500)]
SALTS = (0, 7, HASHES[0], 2**64 - 1)
moves = st.lists(st.tuples(st.integers(0, 30), st.none() | st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1.0])), max_size=60)


@given(moves)
def test_an_order_that_follows_changes_is_the_order_of_what_is_left(story: list[tuple[int, float | None]]) -> None:
    order, scores = RowOrder(), dict[int, float]()
    for row, score in story:
        if score is None:
            order.discard(row)
            scores.pop(row, None)
        else:
            if row in order:
                order.move(row, score)
            else:
                order.set(row, score, HASHES[row])
            scores[row] = score
    assert [row in order for row in range(31)] == [row in scores for row in range(31)]
    everybody = memoryview(bytes(31))
    for salt in SALTS:
        assert list(order.walk(salt, everybody, 0, 100)) == naive(scores, HASHES, salt)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 2500]))
def test_an_order_in_many_pieces_is_one_order(seed: int, different: int) -> None:
    dice = np.random.default_rng(seed)
    size = len(HASHES)
    scores = dice.integers(0, different, size).astype(np.float64)
    order = RowOrder()
    order.begin(np.arange(0, size, 2), scores[::2], np.array(HASHES, dtype=np.uint64)[::2])
    for row in range(1, size, 2):
        order.set(row, scores.item(row), HASHES[row])
    for row in dice.choice(size, 900, replace=False).tolist():
        scores[row] = -1.0
        order.set(row, -1.0, HASHES[row])
    fits = dice.integers(0, 2, size).astype(np.uint8).data
    for salt in SALTS:
        ordered = naive(dict(enumerate(scores.tolist())), HASHES, salt)
        assert list(order.walk(salt, fits, 1, size)) == [row for row in ordered if fits[row] == 1]
        assert list(order.walk(salt, fits, 1, 300)) == [row for row in ordered[:300] if fits[row] == 1]


@settings(deadline=None, max_examples=examples(20))
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 2500]), st.sampled_from([1, 40, 900, 2500]))
def test_many_moves_at_once_are_the_same_moves(seed: int, different: int, moved: int) -> None:
    dice = np.random.default_rng(seed)
    scores = dice.integers(0, different, len(HASHES)).astype(np.float64)
    order = RowOrder()
    order.begin(np.arange(len(HASHES)), scores, np.array(HASHES, dtype=np.uint64))
    for _ in range(3):
        rows = dice.choice(len(HASHES), moved, replace=False)
        scores[rows] = dice.integers(-1, different, moved)
        order.move_all(rows.tolist(), scores[rows])
    everybody = memoryview(bytes(len(HASHES)))
    assert list(order.walk(0, everybody, 0, len(HASHES))) == naive(dict(enumerate(scores.tolist())), HASHES, 0)
    order.set(0, 2500.0, HASHES[0])
    assert next(order.walk(0, everybody, 0, 1)) == 0


def test_nobody_is_moved_where_nobody_has_a_place() -> None:
    order = RowOrder()
    order.move_all([], np.zeros(0))
    assert not len(order)
    order.set(3, 1.0, HASHES[3])
    assert list(order.walk(0, memoryview(bytes(4)), 0, 4)) == [3]


@settings(deadline=None)
@given(st.data())
def test_the_best_on_the_way_down_are_the_best_of_all(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 3, 60, 900]))
    kinds = data.draw(st.sampled_from([(NOBODY,), (1.0,), (NOBODY, 1.0), (NOBODY, 0.5, 1.0, 2.0, 3.0)]))
    dice = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scores = dice.choice(np.array(kinds), size)
    cell = dice.integers(0, 3, size).astype(np.int32)
    hashes = np.array(HASHES[:size], dtype=np.uint64)
    order = RowOrder()
    worth = np.where(scores > NOBODY, scores, dice.integers(0, 5, size))
    order.begin(np.arange(size), worth, hashes)
    fitting = Fitting.of(scores > NOBODY)
    mask = dice.random(size) < data.draw(st.sampled_from([0.01, 0.5]))
    for among in (Among(), Among(cell=1), Among(mask=mask), Among(mask=mask, cell=0)):
        for salt in SALTS[:1] if size == 1 else SALTS:
            most = data.draw(st.sampled_from([1, 3, 70]))
            without = (0,) if data.draw(st.booleans()) else ()
            quick = Ranking(hashes, cell, salt, fitting, lambda: scores, order)
            slow = Ranking(hashes, cell, salt, fitting, lambda: scores)
            may = {
                row: scores.item(row)
                for row in range(size)
                if row in fitting
                and row not in without
                and among.cell in (None, cell[row])
                and (among.mask is None or among.mask[row])
            }
            best = naive(may, HASHES, salt)[:most]
            assert quick.best(most, among=among, without=without) == best
            assert slow.best(most, among=among, without=without) == best
            assert quick.best(most, among=among, without=without) == best


requests = [
    placement_request(
        RequestSpec(
            project_id=ProjectId("p"),
            user_id=UserId("u"),
            flavor=Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=64, extra_specs=specs),
        )
    )
    for vcpus, specs in ((1, {}), (2, {"trait:A": "required"}), (4, {"trait:B": "forbidden"}))
]
events = st.one_of(
    st.tuples(st.just("report"), st.tuples(st.sampled_from(NODES), st.none() | usages)),
    st.tuples(st.just("claim"), claims),
    st.tuples(st.just("wish"), st.tuples(st.sampled_from(NODES), st.booleans())),
    st.tuples(st.just("ask"), st.sampled_from(requests)),
)


def agrees(kept: Shapes, table: HostTable, request: PlacementRequest, most: int) -> None:
    """Compare with shapes made afresh, and with hosts that are simply sorted."""
    one = kept.evaluate(request)
    fresh = Shapes(table, pipeline(SchedulerSettings()), 64)
    other = fresh.evaluate(request)
    size = table.size
    assert one.stage[:size].tolist() == other.stage[:size].tolist()
    assert one.stages() == other.stages()
    assert (one.considered, one.left) == (other.considered, other.left)
    scores = fresh.scores(other, request).tolist()
    fitting = {row: score for row, score in enumerate(scores) if score > NOBODY}
    best = naive(fitting, table.node_hash.tolist(), 7)
    assert kept.ranking(one, request, 7).best(most) == best[:most]
    assert kept.scores(one, request).tolist() == scores


@pytest.mark.parametrize(
    ("longest_walk", "most", "cached"), [(256, 5, 64), (2, 2, 64), (2, 3, 2)], ids=["near", "far", "too far"]
)
@given(st.lists(events, max_size=40))
def test_evaluated_shapes_kept_in_step_equal_shapes_made_afresh(
    longest_walk: int, most: int, cached: int, story: list[tuple[str, Any]]
) -> None:
    states = HostStates(SchedulerSettings())
    states.take(Key(CELLS, CELL), 1, CellValue(intent=Cell(uuid=CELL, name="c"), asserted=True), 0.0)
    states.take(Key(BEATS, f"{CELL}/one"), 1, BeatValue(heard=NODES, at=1), 0.0)
    kept = Shapes(states.table, pipeline(SchedulerSettings()), cached)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_LONGEST_WALK", longest_walk)
        patch.setattr(standing, "_MOST_OWN", longest_walk)
        for number, (kind, what) in enumerate(story, 2):
            if kind == "report":
                states.take(Key(COMPUTE, what[0]), number, value_of(*what), 0.0)
            elif kind == "claim":
                states.claims.assume(what)
            elif kind == "wish":
                wish = HostIntent(node=what[0], host=f"host-{what[0]}", cell=CELL, disabled=what[1])
                states.take(Key(OPERATOR, what[0]), number, wish, 0.0)
            else:
                agrees(kept, states.table, what, most)
        for request in requests:
            agrees(kept, states.table, request, most)
