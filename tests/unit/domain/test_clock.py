"""Times as clients write and read them."""

from __future__ import annotations

import pytest

from skep.domain.clock import SECOND, Clock, isoformat, isoformat_micro, parse_iso

NEW_YEAR = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z"""


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00",
        "2026-01-01T01:00:00+01:00",
        "2025-12-31T14:30:00-09:30",
        "2026-01-01",
        "20260101T000000Z",
        "  2026-01-01T00:00:00Z\n",
    ],
)
def test_forms_of_one_moment(text: str) -> None:
    assert parse_iso(text) == NEW_YEAR


def test_microseconds_are_kept_exactly_however_far_the_date() -> None:
    assert parse_iso("2026-01-01T00:00:00.000001Z") == NEW_YEAR + 1
    assert parse_iso("9999-12-31T23:59:59.999999Z") == 253_402_300_800 * SECOND - 1
    assert parse_iso("1969-12-31T23:59:59.999999Z") == -1


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "2026-01-01T25:00:00Z", "1767225600", "2026-01-01T00:00:00+99:00", "\0"]
)
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_iso(text)


def test_times_are_written_as_nova_writes_them() -> None:
    assert isoformat(NEW_YEAR + 1_999_999) == "2026-01-01T00:00:01Z"
    assert isoformat_micro(NEW_YEAR + 1) == "2026-01-01T00:00:00.000001"
    assert isoformat_micro(NEW_YEAR) == "2026-01-01T00:00:00.000000"


def test_the_system_clock_counts_microseconds() -> None:
    assert Clock().now() > NEW_YEAR // 2
