"""The table of event types in docs/events.md is that of the code."""

from __future__ import annotations

from pathlib import Path

from skep.api.events_page import written_into

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def test_the_page_has_the_table_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert written_into(text) == text
