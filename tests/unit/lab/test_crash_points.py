"""No step, no write and no action is forgotten by the walks of crashes: what they take from tables is complete."""

from __future__ import annotations

import importlib
import random

import pytest
from msgspec.structs import replace

from skep.api.actions import ROWS_BY_KEY
from skep.domain.actions import ACTION_STEPS, ACTIONS, Kind
from skep.domain.builds import STEPS
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


MOVING = {"migrate", "confirmResize", "revertResize"}
"""Moves have steps of their own: `tests/functional/test_cold_moves.py` deletes servers and restarts at each of them."""


def test_each_action_is_walked() -> None:
    assert {key for one in ACTING for key in one.body} == set(ROWS_BY_KEY) - MOVING
    rehost = {key for key, row in ROWS_BY_KEY.items() if any(ACTIONS[name].kind is Kind.REHOST for name in row.actions)}
    assert rehost <= MOVING <= set(ROWS_BY_KEY)


@pytest.mark.parametrize("operation", ACTING, ids=lambda one: one.name)
def test_each_step_of_an_action_on_a_guest_is_walked(operation: Operation) -> None:
    (key,) = operation.body
    on_guests = {ACTIONS[name].kind is Kind.GUEST for name in ROWS_BY_KEY[key].actions} == {True}
    walked = {point.step for point in operations.points_of(operation) if point.step}
    assert walked == (set(ACTION_STEPS) if on_guests else set())


@pytest.mark.parametrize("write", sorted({write for one in OPERATIONS for write in one.writes} | set(WRITES.values())))
def test_the_writes_are_there(write: str) -> None:
    module, _, function = write.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))


def test_chaos_comes_to_every_point_of_all_steps() -> None:
    assert {*STEPS, *ACTION_STEPS} == set(ALL_STEPS)
    dice = random.Random(1)
    came = {replace(drawn(dice, ALL_STEPS), nth=1) for _ in range(5000)}
    assert came == {replace(point, nth=1) for step in ALL_STEPS for point in points_of(step)}


def test_each_step_has_one_role_whose_processes_die_there() -> None:
    by_role = {role: steps_of(role) for role in ROLES}
    assert sorted(step for steps in by_role.values() for step in steps) == sorted(ALL_STEPS)
    assert [role for role, steps in by_role.items() if not steps] == ["scheduler"]
    assert set(ACTION_STEPS) <= {*by_role["cell-conductor"], *by_role["compute"]}
