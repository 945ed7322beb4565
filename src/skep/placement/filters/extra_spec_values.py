"""The little language of extra spec values: an optional operator, then what it compares with (Nova, "Flavors")."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_STRINGS: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def matches(value: Any, wanted: str) -> bool:
    """Tell whether `value` is what `wanted` asks for.

    `=` means "at least" (its meaning in Nova). Without a known operator the two must be equal. Of a list `<in>` and
    `<all-in>` ask for members; of anything else, for parts of the text.
    """
    first, _, rest = wanted.strip().partition(" ")
    rest = rest.strip()
    text = str(value)
    if first in _NUMBERS:
        try:
            return _NUMBERS[first](float(text), float(rest))
        except ValueError:
            return False
    if first in _STRINGS:
        return _STRINGS[first](text, rest)
    held = [str(one) for one in value] if isinstance(value, (list, tuple)) else text
    if first == "<in>":
        return rest in held
    if first == "<all-in>":
        return all(word in held for word in rest.split())
    if first == "<or>":
        return text in [word.strip() for word in rest.split("<or>")]
    return text == wanted
