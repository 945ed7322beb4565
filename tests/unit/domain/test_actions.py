from __future__ import annotations

from skep.config.sections import ConductorSettings
from skep.domain.actions import ACTIONS, Kind, of_task
from skep.domain.instances import Task
from skep.domain.states import BUILD_STATES


def test_each_action_of_a_host_has_a_task_of_its_own_a_deadline_and_states() -> None:
    of_hosts = [action for action in ACTIONS.values() if action.kind is Kind.GUEST]
    assert len({action.task for action in of_hosts}) == len(of_hosts)
    for action in of_hosts:
        assert action.task is not None
        assert of_task(action.task) is action
        assert action.begins_in
        assert not action.begins_in & BUILD_STATES, "a guest that is not built has a host that builds it"
        assert action.deadline in ConductorSettings.__struct_fields__


def test_every_task_belongs_to_an_action() -> None:
    assert all(task in of_task(task).tasks for task in Task)
    assert all(name == action.name for name, action in ACTIONS.items())
