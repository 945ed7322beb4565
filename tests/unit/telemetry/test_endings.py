"""What is told of an action that was one write."""

from __future__ import annotations

import msgspec

from skep.domain.actions import Ended
from skep.domain.clock import Clock
from skep.domain.instances import State
from skep.telemetry import endings
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notification, Notifier
from tests.support.rows import ONE, context, server


def test_a_confirmation_begins_and_ends() -> None:
    told: list[Notification] = []
    after = msgspec.structs.replace(server(), state=State.ACTIVE)
    over = Ended(
        action="confirm_resize",
        context=context("req-confirm"),
        instance=ONE,
        attempt=1,
        host="api-1",
        started_at=1,
        ended_at=1,
        before=State.RESIZED,
    )
    endings.ended(Metrics(), Notifier(Clock(), sinks=(told.append,)), [(over, after)])
    assert [(one.event_type, one.payload["nova_object.data"]["state"]) for one in told] == [
        ("instance.resize_confirm.start", "resized"),
        ("instance.resize_confirm.end", "active"),
    ]
    assert {one.request for one in told} == {"req-confirm"}
