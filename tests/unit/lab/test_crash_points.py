"""No step, no write and no action is forgotten by the walks of crashes: what they take from tables is complete."""

from __future__ import annotations

import importlib

import pytest

from skep.api.actions import ROWS_BY_KEY
from skep.domain.actions import ACTION_STEPS, ACTIONS, Kind
from skep.domain.builds import STEPS
from skep_lab.crash import operations
from skep_lab.crash.operations import OPERATIONS, Operation
from skep_lab.crash.points import UNREACHABLE, WAYS, WRITES, points_of
from skep_lab.crash.scenarios import SCENARIOS

ACTING = [one for one in OPERATIONS if one.path == "/action"]


def test_each_step_of_a_build_has_what_sets_it_off() -> None:
    assert set(SCENARIOS) == set(STEPS)


@pytest.mark.parametrize("step", [*STEPS, *ACTION_STEPS])
def test_each_step_has_a_point_of_each_way_or_a_reason(step: str) -> None:
    left_out = {way for one, way in UNREACHABLE if one == step}
    assert {point.way for point in points_of(step)} ^ left_out == set(WAYS)


def test_reasons_are_about_steps_that_there_are() -> None:
    assert {step for step, _ in UNREACHABLE} <= {*STEPS, *ACTION_STEPS}


def test_each_action_is_walked() -> None:
    assert {key for one in ACTING for key in one.body} == set(ROWS_BY_KEY)


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
