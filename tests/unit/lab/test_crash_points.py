"""No step, no write and no action is forgotten by the walks of crashes: what they take from tables is complete."""

from __future__ import annotations

import importlib
import operator
import random

import pytest
from msgspec.structs import replace

from skep.api.actions import ROWS_BY_KEY
from skep.domain.actions import ACTION_STEPS, ACTIONS, Kind
from skep.domain.builds import STEPS, VOLUME_STEPS
from skep.domain.moves import MOVE_STEPS
from skep.domain.moves import STEPS as ROWS
from skep_lab.beside.scenarios import CASES
from skep_lab.crash.operation import Operation
from skep_lab.crash.operation import points_of as points_of_operation
from skep_lab.crash.operations import OPERATIONS
from skep_lab.crash.points import ALL_STEPS, BESIDE_STEPS, UNREACHABLE, WAYS, WRITES, Point, drawn, points_of
from skep_lab.crash.scenarios import SCENARIOS
from skep_lab.processes.faults import ROLES, steps_of

ACTING = [one for one in OPERATIONS if one.path == "/action"]
MOVES = [one for one in OPERATIONS if one.passes]


def test_each_step_of_a_build_has_what_sets_it_off() -> None:
    assert set(SCENARIOS) == set(STEPS)


def test_each_step_of_a_server_with_ports_and_volumes_is_walked_beside_services() -> None:
    walked = {case.at.step for case in CASES if isinstance(case.at, Point)}
    units = {case.at.unit for case in CASES if isinstance(case.at, Point)}
    live = {step for step in MOVE_STEPS if step.startswith("move_live_")}
    assert walked - {""} == {*STEPS, *VOLUME_STEPS, *ACTION_STEPS, *live} - set(WRITES)
    assert units - {""} == set(WRITES.values())


@pytest.mark.parametrize("step", BESIDE_STEPS)
def test_each_step_has_a_point_of_each_way_or_a_reason(step: str) -> None:
    left_out = {way for one, way in UNREACHABLE if one == step}
    assert {point.way for point in points_of(step)} ^ left_out == set(WAYS)


def test_reasons_are_about_steps_that_there_are() -> None:
    assert {step for step, _ in UNREACHABLE} <= set(BESIDE_STEPS)


UNSHELVE = "unshelve"
"""It builds a server, so it has the steps of a build."""
WRITING_NOTHING = {"injectNetworkInfo", *(key for key, row in ROWS_BY_KEY.items() if not row.actions)}
"""Of these nothing can be cut off."""


OF_VOLUMES = {"shelve_volume_backed", "snapshot_volume_backed"}
"""What stands for an action where a server boots from a volume: those that walk have none."""


def test_each_action_is_walked() -> None:
    assert {key for one in ACTING for key in one.body} == set(ROWS_BY_KEY) - WRITING_NOTHING


@pytest.mark.parametrize("operation", ACTING, ids=lambda one: one.name)
def test_each_step_of_an_action_on_a_guest_is_walked(operation: Operation) -> None:
    (key,) = operation.body
    kinds = {ACTIONS[name].kind for name in ROWS_BY_KEY[key].actions if name not in OF_VOLUMES}
    walked = {point.step for point in points_of_operation(operation) if point.step}
    of_build = {"reschedule", "dispatch", "claim", "may_build", "prepare", "may_spawn", "spawn", "built"}
    if key == UNSHELVE:
        between_cells = {"move", "stage", "map", "settle"} if operation.leaves_cell else set()
        assert walked == (of_build | between_cells if operation.before == "SHELVED_OFFLOADED" else set(ACTION_STEPS))
    elif key == "shelveOffload":
        assert walked == {"destroy"}
    elif kinds <= {Kind.REHOST, Kind.REBUILD}:
        assert walked <= set(MOVE_STEPS)
        assert {"may_move", "moved"} < walked
    else:
        assert walked == (set(ACTION_STEPS) if kinds == {Kind.GUEST} else set(operation.passes))


def test_each_step_of_a_move_is_walked() -> None:
    assert {point.step for one in MOVES for point in points_of_operation(one)} - {""} == set(MOVE_STEPS)


def test_each_row_of_a_move_is_walked() -> None:
    """A move comes to what a host is told of once for each of its rows; one that fails half-way takes another way."""
    walked = {row.name for row in ROWS.values() if row.side is None or f"move_{row.order}" in _of(row.name)}
    assert walked == set(ROWS) - NOT_WALKED


def _of(row: str) -> set[str]:
    """Return the steps to which operations come that take the way of a row."""
    ways = {
        "revert": ("revert", "revert-resize"),
        "evacuate": ("evacuate-a-living-host", "evacuate-and-fail"),
        "rebuild": ("rebuild", "rebuild-and-fail"),
        # Its hosts are told of the same orders.
        "reimage": ("rebuild", "rebuild-and-fail"),
        "live": ("live-migrate", "live-migrate-and-fail"),
    }
    way = ways.get(row.partition("_")[0], ("migrate", "migrate-and-fail"))
    return {step for one in MOVES if one.name in way for step in one.passes}


NOT_WALKED = {"revert_take_back"}
"""Its order is that of the other ways back."""


@pytest.mark.parametrize("write", sorted({write for one in OPERATIONS for write in one.writes} | set(WRITES.values())))
def test_the_writes_are_there(write: str) -> None:
    module, _, function = write.rpartition(".")
    if module.rpartition(".")[2][:1].isupper():
        module, _, method = module.rpartition(".")
        function = f"{method}.{function}"
    assert callable(operator.attrgetter(function)(importlib.import_module(module)))


def test_chaos_comes_to_every_point_of_all_steps() -> None:
    assert {*STEPS, *ACTION_STEPS, *MOVE_STEPS} == set(ALL_STEPS)
    dice = random.Random(1)
    came = {replace(drawn(dice, ALL_STEPS), nth=1) for _ in range(5000)}
    assert came == {replace(point, nth=1) for step in ALL_STEPS for point in points_of(step)}


def test_each_step_has_one_role_whose_processes_die_there() -> None:
    by_role = {role: steps_of(role) for role in ROLES}
    assert sorted(step for steps in by_role.values() for step in steps) == sorted(ALL_STEPS)
    assert [role for role, steps in by_role.items() if not steps] == ["scheduler"]
    assert set(ACTION_STEPS) <= {*by_role["cell-conductor"], *by_role["compute"]}
