"""Conditions on one value: an operator and what it compares with, as in `>= 100`.

The same words are used by extra specs (`volume:free_gb` = `>= 100`) and by filters of host states (`free.VCPU>=4`).
"""

from __future__ import annotations

import math
import re
from typing import Literal, cast

import msgspec

Operator = Literal["==", "!=", ">=", "<=", ">", "<"]

OPERATORS = "=, ==, !=, >=, <=, > or <"
"""For error texts."""

_AMOUNT = re.compile(r"\s*(==|!=|>=|<=|=|>|<)?\s*(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*")
_PHRASE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_.]{0,254})\s*(==|!=|>=|<=|=|>|<)\s*(\S(?:.{0,253}\S)?)\s*")


class Amount(msgspec.Struct, frozen=True):
    """A number and how a value must compare with it."""

    operator: Operator
    value: float


class Phrase(msgspec.Struct, frozen=True):
    """A condition on a named field; what the value may be depends on the field."""

    field: str
    operator: Operator
    value: str

    @property
    def number(self) -> float | None:
        """The value as a number; None where it is none."""
        try:
            number = float(self.value)
        except ValueError:
            return None
        return number if math.isfinite(number) else None


def amount(text: str, *, bare: Operator = ">=") -> Amount | None:
    """Read `>= 100`; None when it is no such condition.

    `=` and a number alone mean `bare`: in extra specs "at least", as in Nova.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    word = found[1]
    operator = bare if word in (None, "=") else cast("Operator", word)
    return Amount(operator, float(found[2]))


def phrase(text: str) -> Phrase | None:
    """Read `free.VCPU>=4`; None when it is no such condition. `=` is `==`."""
    found = _PHRASE.fullmatch(text)
    if found is None:
        return None
    operator = "==" if found[2] == "=" else found[2]
    return Phrase(found[1], cast("Operator", operator), found[3])
