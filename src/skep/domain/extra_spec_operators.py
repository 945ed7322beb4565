"""Operators that values of extra specs may begin with, where a host is compared with them (Nova, "Flavors")."""

from __future__ import annotations

import re

NUMBERS = ("=", "==", "!=", ">=", "<=")
"""Compare numbers; `=` means at least."""
TEXTS = ("s==", "s!=", "s<", "s<=", "s>", "s>=")
PARTS = ("<in>", "<all-in>", "<or>")

OPERATORS = (*NUMBERS, *TEXTS, *PARTS)

_LIKE_AN_OPERATOR = re.compile(r"<[a-z-]*>|s?[<>=!]+")


def is_comparison(value: str) -> bool:
    """Tell whether a value can be compared with: it begins with no operator, or a known one with something after it."""
    first, _, rest = value.strip().partition(" ")
    if first not in OPERATORS:
        return _LIKE_AN_OPERATOR.fullmatch(first) is None
    return _is_number(rest) if first in NUMBERS else bool(rest.strip())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
