"""The events of a create: the attempts to build the server."""

from __future__ import annotations

import pytest

from skep.api.views.instance_actions import create_events
from skep.domain.assignments import Role
from skep.domain.builds import AttemptRecord
from skep.domain.ids import NodeUuid
from tests.support.rows import server


def attempt(number: int, host: str, role: Role) -> AttemptRecord:
    node = NodeUuid(f"node-{host}")
    return AttemptRecord(attempt=number, node=node, host=host, open=True, outcome="built", role=role)


@pytest.mark.parametrize("role", ["move_source", "move_target"])
def test_attempts_of_a_move_are_no_events_of_the_create(role: Role) -> None:
    events = create_events([attempt(1, "h1", "build"), attempt(2, "h2", "build"), attempt(3, "h3", role)], server())
    assert [event.host for event in events] == ["h2", "h1"]
