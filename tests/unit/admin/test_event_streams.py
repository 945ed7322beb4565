"""Which readers want events as a stream."""

from __future__ import annotations

import pytest

from skep.admin.event_streams import is_wanted


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/event-stream", True),
        ("text/html, Text/Event-Stream ; charset=utf-8", True),
        ("text/event-stream;q=0.1", True),
        ("text/event-stream;v=2;q=1", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream; Q = 0.000, application/json", False),
        ("text/event-stream-of-others", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_stream_is_wanted_by_its_name_and_with_weight(accept: str, *, wanted: bool) -> None:
    assert is_wanted(accept) is wanted
