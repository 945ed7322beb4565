"""Notifications have Nova's envelope and reach every sink."""

from __future__ import annotations

import io
import json

import pytest

from skep.domain.clock import Clock, Timestamp
from skep.domain.context import RequestContext
from skep.domain.ids import RequestId, is_uuid
from skep.domain.notifications import payload as versioned
from skep.telemetry import logs, notifier
from skep.telemetry.notifier import Notification, Notifier

CONTEXT = RequestContext(request_id=RequestId("req-1"))


class Stopped(Clock):
    """A clock that stands still."""

    def now(self) -> Timestamp:
        return Timestamp(1_700_000_000_123_456)


def test_each_sink_gets_the_notification_in_order() -> None:
    first: list[Notification] = []
    second: list[Notification] = []
    both = Notifier(Stopped(), [first.append, second.append])
    payload = versioned("InstanceCreatePayload", "1.13", {"uuid": "i"})
    both.emit("instance.create.start", payload, publisher_id="nova-compute:h", context=CONTEXT)
    both.emit("instance.create.error", payload, publisher_id="nova-compute:h", context=CONTEXT, priority="ERROR")
    assert first == second
    assert [(one.event_type, one.priority) for one in first] == [
        ("instance.create.start", "INFO"),
        ("instance.create.error", "ERROR"),
    ]
    assert first[0].timestamp == "2023-11-14 22:13:20.123456"
    assert is_uuid(first[0].message_id)
    assert first[0].message_id != first[1].message_id
    assert first[0].payload == {
        "nova_object.name": "InstanceCreatePayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.13",
        "nova_object.data": {"uuid": "i"},
    }


@pytest.mark.parametrize(("level", "carries"), [("debug", True), ("info", False)])
def test_the_first_sink_is_the_log(level: logs.Level, carries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    logs.configure(level, "json", stream)
    monkeypatch.setattr(notifier, "_log", logs.get_logger("skep.notifications"))  # whatever the old one has cached
    payload = versioned("InstanceUpdatePayload", "2.1", {"uuid": "i"})
    Notifier(Stopped()).emit("instance.update", payload, publisher_id="nova-conductor:c", context=CONTEXT)
    line = json.loads(stream.getvalue())
    assert (line["source"], line["event"], line["instance"]) == ("skep.notifications", "instance.update", "i")
    assert (line["publisher_id"], line["priority"], is_uuid(line["message_id"])) == ("nova-conductor:c", "INFO", True)
    assert ("payload" in line) is carries
