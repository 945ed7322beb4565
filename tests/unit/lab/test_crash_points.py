"""No step, no write and no action is forgotten by the walks of crashes: what they take from tables is complete."""

from __future__ import annotations

import importlib
import random

import pytest
from msgspec.structs import replace

from skep.api.actions import ROWS_BY_KEY
from skep.domain.actions import ACTION_STEPS, ACTIONS, Kind
from skep.domain.builds import STEPS
from skep.domain.moves import MOVE_STEPS
from skep.domain.moves import STEPS as MOVES
from skep_lab.crash import operations
from skep_lab.crash.operations import OPERATIONS, Operation
from skep_lab.crash.points import ALL_STEPS, UNREACHABLE, WAYS, WRITES, drawn, points_of
from skep_lab.crash.scenarios import SCENARIOS
from skep_lab.processes.faults import ROLES, steps_of

ACTING = [one for one in OPERATIONS if one.path == "/action"]


def test_each_step_of_a_build_has_what_sets_it_off() -> None:
    assert set(SCENARIOS) == set(STEPS)


@pytest.mark.parametrize("step", ALL_STEPS)
def test_each_step_has_a_point_of_each_way_or_a_reason(step: str) -> None:
    left_out = {way for one, way in UNREACHABLE if one == step}
    assert {point.way for point in points_of(step)} ^ left_out == set(WAYS)


def test_reasons_are_about_steps_that_there_are() -> None:
    assert {step for step, _ in UNREACHABLE} <= set(ALL_STEPS)


BY_TESTS = {"resize", "evacuate", "rebuild", "os-migrateLive"}
"""Their own tests restart clouds at each of their steps: `tests/functional/test_cold_moves.py`, `test_evacuations.py`,
`test_rebuilds.py`, `test_live_migrations.py`. A resize takes the steps of a migration."""

UNSHELVE = "unshelve"
"""It builds a server, so it has the steps of a build."""
WITH_ANOTHER = {"shelveOffload"}
"""The cloud of the walk takes a server off its host with the very write that ends a shelve."""

WRITING_NOTHING = {"injectNetworkInfo", *(key for key, row in ROWS_BY_KEY.items() if not row.actions)}
"""Of these nothing can be cut off."""


def test_each_action_is_walked() -> None:
    assert {key for one in ACTING for key in one.body} == set(ROWS_BY_KEY) - BY_TESTS - WITH_ANOTHER - WRITING_NOTHING


@pytest.mark.parametrize("operation", ACTING, ids=lambda one: one.name)
def test_each_step_of_an_action_on_a_guest_is_walked(operation: Operation) -> None:
    (key,) = operation.body
    kinds = {ACTIONS[name].kind for name in ROWS_BY_KEY[key].actions}
    walked = {point.step for point in operations.points_of(operation) if point.step}
    of_build = {"reschedule", "dispatch", "claim", "may_build", "prepare", "may_spawn", "spawn", "built"}
    if key == UNSHELVE:
        assert walked == of_build
    elif kinds == {Kind.REHOST}:
        assert walked <= set(MOVE_STEPS)
        assert {"may_move", "moved"} < walked
    else:
        assert walked == (set(ACTION_STEPS) if kinds == {Kind.GUEST} else set())


COLD = [row for row in MOVES.values() if not row.name.startswith(("evacuate", "rebuild", "live"))]


def test_each_step_of_a_cold_move_is_walked() -> None:
    walked = {point.step for one in ACTING for point in operations.points_of(one) if one.passes}
    assert walked - {""} == {"move_select", "may_move", "moved", *(f"move_{row.order}" for row in COLD if row.order)}


def test_each_row_of_a_cold_move_is_walked() -> None:
    """A move comes to `moved` once for each of its rows; that of one which fails half-way is the other way back."""
    told = sum(one.passes["moved"][0] for one in ACTING if one.name in ("migrate", "revert"))
    assert told == sum(row.side is not None for row in COLD) - len({"take_back", "revert_take_back"})


@pytest.mark.parametrize("write", sorted({write for one in OPERATIONS for write in one.writes} | set(WRITES.values())))
def test_the_writes_are_there(write: str) -> None:
    module, _, function = write.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))


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
