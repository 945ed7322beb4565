"""Versions of hypervisors: whole numbers in which each part has three digits, and conditions on them in images."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,5})\s*")


def parts_of(number: int) -> tuple[int, ...]:
    """Return (2, 6, 3) of 2006003."""
    parts: list[int] = []
    while number:
        number, part = divmod(number, 1000)
        parts.append(part)
    return tuple(reversed(parts))


def satisfies(number: int, conditions: str) -> bool:
    """Tell whether a version satisfies all conditions of a list like `>=2.6, <3.0`; what is no such list, none does."""
    version = parts_of(number)
    for one in conditions.split(","):
        condition = _CONDITION.fullmatch(one)
        if condition is None:
            return False
        wanted = tuple(int(part) for part in condition[2].split("."))
        length = max(len(version), len(wanted))
        if not _OPERATORS[condition[1]](_filled(version, length), _filled(wanted, length)):
            return False
    return True


def are_conditions(text: str) -> bool:
    """Tell whether this is such a list."""
    return all(_CONDITION.fullmatch(one) for one in text.split(","))


def _filled(version: tuple[int, ...], length: int) -> tuple[int, ...]:
    return version + (0,) * (length - len(version))
