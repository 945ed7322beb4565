"""Laws of times and amounts."""

from __future__ import annotations

import contextlib
import datetime

from hypothesis import given
from hypothesis import strategies as st

from skep.domain.clock import isoformat_micro, parse_iso
from skep.domain.resources import add, subtract

AMOUNTS = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A"]), st.integers(-(10**9), 10**9))
MOMENTS = st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 31))  # noqa: DTZ001 - in UTC


@given(MOMENTS)
def test_a_time_that_was_written_is_read_as_it_was(moment: datetime.datetime) -> None:
    at = parse_iso(moment.isoformat())
    assert parse_iso(isoformat_micro(at)) == at
    assert isoformat_micro(at) == moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_a_zone_shifts_a_time_by_as_much(moment: datetime.datetime, minutes: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    local, utc = parse_iso(moment.replace(tzinfo=zone).isoformat()), parse_iso(moment.isoformat())
    assert utc - local == minutes * 60 * 1_000_000


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_iso(text), int)


@given(AMOUNTS, AMOUNTS)
def test_what_is_added_can_be_taken_away(left: dict[str, int], right: dict[str, int]) -> None:
    back = subtract(add(left, right), right)
    assert {key: value for key, value in back.items() if value} == {key: value for key, value in left.items() if value}
    assert add(left, right) == add(right, left)
