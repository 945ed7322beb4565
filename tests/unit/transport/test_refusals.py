"""Refusals are all counted, and the log says so without being flooded."""

from __future__ import annotations

import structlog

from skep.transport.refusals import QUIET_SECONDS, RefusedMessages


def test_all_are_counted_and_a_line_tells_how_many_there_were() -> None:
    now = [100.0]
    told: list[tuple[str, str]] = []
    refusals = RefusedMessages(lambda kind, reason: told.append((kind, reason)), monotonic=lambda: now[0])
    with structlog.testing.capture_logs() as logged:
        for _ in range(1000):
            refusals.note("cast", "overloaded", "scheduler")
        refusals.note("call", "overloaded", "scheduler")
        now[0] += QUIET_SECONDS
        refusals.note("cast", "overloaded", "scheduler")
    assert refusals.counts == {("cast", "overloaded"): 1001, ("call", "overloaded"): 1}
    assert len(told) == 1002
    assert [(line["kind"], line["count"], line["log_level"]) for line in logged] == [
        ("cast", 1, "warning"),
        ("call", 1, "warning"),
        ("cast", 1000, "warning"),
    ]
