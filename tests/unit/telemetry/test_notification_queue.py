"""Notifications are sent in order and wait while the broker is away; what has no room is dropped and counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.ids import RequestId
from skep.telemetry import notification_queue
from skep.telemetry.metrics import Metrics
from skep.telemetry.notification_queue import NotificationQueue
from skep.telemetry.notifier import Notification

SECONDS = 10.0


def told(name: str) -> Notification:
    return Notification(
        event_type=name,
        publisher_id="nova-compute:h",
        priority="INFO",
        payload={},
        timestamp="",
        message_id=name,
        context=RequestContext(request_id=RequestId("req-1")),
    )


class Gate:
    """A broker that takes messages, holds them, or is away, as the test says."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.tries = 0
        self.away = False
        self.closed = threading.Event()
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.opened.set()
        self._changed = threading.Condition()

    def messages(self, notification: Notification) -> list[str]:
        if notification.event_type == "bad":
            raise TypeError("no JSON")
        if notification.event_type == "none":
            return []
        return [f"{notification.event_type}.{form}" for form in ("a", "b")]

    def send(self, message: Any) -> None:
        self.entered.set()
        assert self.opened.wait(SECONDS)
        with self._changed:
            self.tries += 1
            self._changed.notify_all()
            if self.away:
                raise Unavailable("nothing listens")
            self.taken.append(message)

    def close(self) -> None:
        self.closed.set()

    def wait_taken(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.taken) >= number, SECONDS), self.taken

    def wait_tries(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.tries >= number, SECONDS), self.tries


@pytest.fixture
def broker() -> Gate:
    return Gate()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def queue_of(broker: Gate, metrics: Metrics, *, length: int = 100, flush_seconds: float = SECONDS) -> NotificationQueue:
    return NotificationQueue(broker, metrics, length=length, flush_seconds=flush_seconds)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"skep_notifications_{name}", labels) or 0.0


@contextmanager
def held(broker: Gate) -> Iterator[None]:
    """Let the broker hang for the length of a block."""
    broker.opened.clear()
    try:
        yield
    finally:
        broker.opened.set()


async def test_all_forms_of_each_are_sent_in_order_and_the_rest_at_the_stop(broker: Gate, metrics: Metrics) -> None:
    queue = queue_of(broker, metrics)
    queue.start()
    with held(broker):
        for number in range(5):
            queue(told(str(number)))
        queue(told("none"))
        assert value(metrics, "waiting") == 6
    await queue.stop()
    assert broker.taken == [f"{number}.{form}" for number in range(5) for form in ("a", "b")]
    assert (value(metrics, "sent_total"), value(metrics, "waiting")) == (6, 0)
    assert broker.closed.is_set()


async def test_what_does_not_fit_is_dropped_and_said_once(broker: Gate, metrics: Metrics) -> None:
    queue = queue_of(broker, metrics, length=2)
    queue.start()
    with capture_logs() as lines:
        with held(broker):
            for number in range(5):
                queue(told(str(number)))
        broker.wait_taken(4)
        await queue.stop()
    assert broker.taken == ["0.a", "0.b", "1.a", "1.b"]
    assert value(metrics, "dropped_total", reason="full") == 3
    events = [(line["event"], line["log_level"]) for line in lines]
    assert events == [("notifications dropped", "error"), ("notifications fit again", "warning")]
    assert lines[-1]["dropped"] == 3


async def test_it_returns_at_once_while_the_broker_hangs(broker: Gate, metrics: Metrics) -> None:
    queue = queue_of(broker, metrics, length=1000, flush_seconds=0.1)
    queue.start()
    with held(broker):
        queue(told("0"))
        assert broker.entered.wait(SECONDS)
        began = time.monotonic()
        for number in range(1000):
            queue(told(str(number)))
        assert time.monotonic() - began < 1.0
        await queue.stop()
        assert value(metrics, "dropped_total", reason="stopped") == 1000
        assert value(metrics, "waiting") == 0
        queue(told("late"))
        assert value(metrics, "dropped_total", reason="stopped") == 1001
    assert broker.closed.wait(SECONDS), "the thread ends when the broker moves again"
    assert value(metrics, "sent_total") == 0, "what was given up is counted once"


async def test_it_tries_again_until_the_broker_is_back(
    broker: Gate, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_queue, "FIRST_PAUSE", 0.001)
    queue = queue_of(broker, metrics)
    broker.away = True
    with capture_logs() as lines:
        queue.start()
        queue(told("0"))
        queue(told("1"))
        broker.wait_tries(4)
        assert value(metrics, "broker_away") == 1
        broker.away = False
        broker.wait_taken(4)
        await queue.stop()
    assert broker.taken == ["0.a", "0.b", "1.a", "1.b"]
    assert value(metrics, "broker_away") == 0
    assert [line["event"] for line in lines] == ["broker of notifications is away", "broker of notifications is back"]
    assert lines[0]["error"] == "nothing listens"


async def test_a_stop_while_the_broker_is_away_ends_in_time(broker: Gate, metrics: Metrics) -> None:
    queue = queue_of(broker, metrics, flush_seconds=0.05)
    broker.away = True
    queue.start()
    queue(told("0"))
    broker.wait_tries(1)
    await queue.stop()
    assert value(metrics, "dropped_total", reason="stopped") == 1
    assert broker.closed.wait(SECONDS)


async def test_what_cannot_be_sent_keeps_nothing_up(broker: Gate, metrics: Metrics) -> None:
    queue = queue_of(broker, metrics)
    with capture_logs() as lines:
        queue.start()
        queue(told("bad"))
        queue(told("good"))
        await queue.stop()
    assert broker.taken == ["good.a", "good.b"]
    assert value(metrics, "dropped_total", reason="unsendable") == 1
    assert [(line["event"], line["event_type"]) for line in lines] == [("notification not sent", "bad")]
