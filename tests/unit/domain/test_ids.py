"""Identifiers and what they look like."""

from __future__ import annotations

import re

import pytest

from skep.domain.ids import CELL0, is_uuid, new_request_id, new_uuid, reservation_id

ONE = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


@pytest.mark.parametrize("text", [ONE, ONE.upper(), ONE.replace("-", ""), f"{{{ONE}}}", f"urn:uuid:{ONE}", CELL0])
def test_forms_of_a_uuid(text: str) -> None:
    assert is_uuid(text)


@pytest.mark.parametrize(
    "text", ["", "one", ONE[:-1], ONE + "0", ONE.replace("a", "g"), "0" * 31, ONE + "\n", "é" * 32]
)
def test_what_is_no_uuid(text: str) -> None:
    assert not is_uuid(text)


def test_fresh_ids_differ_and_have_their_form() -> None:
    assert is_uuid(new_uuid())
    assert new_uuid() != new_uuid()
    assert re.fullmatch(r"req-[0-9a-f-]{36}", new_request_id())


def test_a_reservation_is_told_from_its_request() -> None:
    assert reservation_id(f"req-{ONE}") == "r-0a1b2c3d"
