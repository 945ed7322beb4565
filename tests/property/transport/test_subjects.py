"""Addresses become subjects that NATS takes, and no two the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.errors import BadRequest
from skep.transport.base import SCHEDULER, Address, cell_conductor, compute
from skep.transport.subjects import LONGEST, subject_of

TAKEN = re.compile(r"[A-Za-z0-9_%~-]+(\.[A-Za-z0-9_%~-]+)*")
names = st.text(max_size=40) | st.text("ab.%*> ", max_size=6)


@given(names, names)
def test_every_host_has_a_subject_of_its_own(one: str, other: str) -> None:
    subjects = [subject_of("skep", compute("c", name)) for name in (one, other)]
    for subject in subjects:
        assert TAKEN.fullmatch(subject)
        assert subject.count(".") == 4
    assert (subjects[0] == subjects[1]) == (one == other)


def test_plain_addresses_read_as_they_are() -> None:
    assert subject_of("skep", SCHEDULER) == "skep.scheduler"
    assert subject_of("skep", cell_conductor("c-1")) == "skep.cell.c-1.conductor"
    assert subject_of("east", compute("c-1", "h1.example.org")) == "east.cell.c-1.compute.h1%2Eexample%2Eorg"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(BadRequest, match=f"longer than {LONGEST}"):
        subject_of("skep", Address("cell." + "x" * LONGEST))
