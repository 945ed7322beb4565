from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.api import microversions
from skep.api.microversions import MAXIMUM, MINIMUM, NotAcceptable
from skep.domain.errors import BadRequest

STANDARD = b"openstack-api-version"
LEGACY = b"x-openstack-nova-api-version"


def test_without_a_header_it_is_the_oldest() -> None:
    assert microversions.requested({}) == 1


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"compute 2.53", 53),
        (b"Compute 2.53", 53),
        (b"compute   2.53  ", 53),
        (b"compute latest", MAXIMUM),
        (b"compute LATEST", MAXIMUM),
        (b"placement 1.2,compute 2.7", 7),
        (b"compute 2.6, compute 2.7", 7),
        (b"compute", 1),
        (b"", 1),
        (b"2.53", 1),
    ],
)
def test_the_standard_header(value: bytes, version: int) -> None:
    assert microversions.requested({STANDARD: value}) == version


def test_the_older_header_counts_where_the_standard_one_says_nothing() -> None:
    assert microversions.requested({LEGACY: b"2.60"}) == 60
    assert microversions.requested({LEGACY: b"2.60", STANDARD: b"volume 3.1"}) == 60
    assert microversions.requested({LEGACY: b"2.60", STANDARD: b"compute 2.3"}) == 3


@given(st.integers(MINIMUM, MAXIMUM))
def test_every_supported_one_is_understood_and_answered(minor: int) -> None:
    assert microversions.requested({STANDARD: f"compute 2.{minor}".encode()}) == minor
    assert (LEGACY, f"2.{minor}".encode()) in microversions.answer_headers(minor)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_every_other_one_is_not_acceptable(major: int, minor: int) -> None:
    if major == 2 and MINIMUM <= minor <= MAXIMUM:
        return
    expected = BadRequest if major == 0 else NotAcceptable
    with pytest.raises(expected):
        microversions.requested({LEGACY: f"{major}.{minor}".encode()})


@given(st.binary(max_size=40))
def test_no_header_breaks_anything(value: bytes) -> None:
    for name in (STANDARD, LEGACY):
        with contextlib.suppress(BadRequest, NotAcceptable):
            assert MINIMUM <= microversions.requested({name: value}) <= MAXIMUM
