from __future__ import annotations

from skep.config.sections import ConductorSettings
from skep.domain.actions import ACTIONS, Kind, of_task
from skep.domain.instances import Task
from skep.domain.states import BUILD_STATES

SAME_TASK = {"shelve_volume_backed": "shelve"}
"""An action that stands for another on some servers -> that one."""


def test_each_action_of_a_host_has_a_task_of_its_own_a_deadline_and_states() -> None:
    of_hosts = [one for one in ACTIONS.values() if one.kind is Kind.GUEST and one.name not in SAME_TASK]
    assert len({action.task for action in of_hosts}) == len(of_hosts)
    for action in of_hosts:
        assert action.task is not None
        assert of_task(action.task) is action
        assert action.begins_in
        assert not action.begins_in & BUILD_STATES, "a guest that is not built has a host that builds it"
        assert action.deadline in ConductorSettings.__struct_fields__


def test_an_action_that_stands_for_another_differs_only_on_the_host() -> None:
    for name, other in SAME_TASK.items():
        one, usual = ACTIONS[name], ACTIONS[other]
        assert (one.task, one.record, one.begins_in, one.becomes) == (
            usual.task,
            usual.record,
            usual.begins_in,
            usual.becomes,
        )
        assert of_task(one.task or Task.SHELVING) is usual


def test_every_task_belongs_to_an_action() -> None:
    assert all(task in of_task(task).tasks for task in Task)
    assert all(name == action.name for name, action in ACTIONS.items())
