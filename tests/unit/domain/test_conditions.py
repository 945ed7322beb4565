"""Conditions as people write them."""

from __future__ import annotations

import pytest

from skep.domain.conditions import Amount, Phrase, amount, phrase


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (">= 100", Amount(">=", 100.0)),
        ("100", Amount(">=", 100.0)),
        ("= 100", Amount(">=", 100.0)),
        ("==100", Amount("==", 100.0)),
        ("!= -1.5", Amount("!=", -1.5)),
        ("<3", Amount("<", 3.0)),
        *(
            (text, None)
            for text in ("", "many", ">= many", ">=", "1e5", "nan", "1 2", "> = 1", "9" * 19, "\N{DIGIT ONE}x")
        ),
    ],
)
def test_amounts(text: str, read: Amount | None) -> None:
    assert amount(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("free.VCPU>=4", Phrase("free.VCPU", ">=", "4")),
        (" up = true ", Phrase("up", "==", "true")),
        ("trait!=HW_CPU_X86_AVX2", Phrase("trait", "!=", "HW_CPU_X86_AVX2")),
        ("volume.kind=a b", Phrase("volume.kind", "==", "a b")),
        ("a=b=c", Phrase("a", "==", "b=c")),
        *((text, None) for text in ("", "up", "up=", "=true", "1up=true", "a" * 300 + "=1", "up=" + "x" * 300)),
    ],
)
def test_phrases(text: str, read: Phrase | None) -> None:
    assert phrase(text) == read


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "many", ""])
def test_what_is_no_number(value: str) -> None:
    assert Phrase("a", "==", value).number is None
