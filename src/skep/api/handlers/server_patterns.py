"""Regular expressions that users give: taken only where matching them against a name cannot take long."""

from __future__ import annotations

import re

from skep.domain.errors import BadRequest

MAX_LENGTH = 255
MAX_REPEATS = 2
"""Unbounded repeats in one pattern: each multiplies the time by the length of the name."""
CHOICES_PER_REPEAT = 6
"""How many `?` and `|` weigh as much as a repeat: each may double the time."""

_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)


def check_pattern(pattern: str) -> str:
    """Return the pattern if it is one, and harmless.

    Raises BadRequest for one that is malformed, or that repeats what repeats and so may take for ever.
    """
    if len(pattern) > MAX_LENGTH:
        raise BadRequest(f"Invalid filter: a regular expression may have {MAX_LENGTH} characters")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        raise BadRequest(f"Invalid regular expression: {pattern[:80]}") from None
    if _weight(pattern) > MAX_REPEATS * CHOICES_PER_REPEAT:
        raise BadRequest(f"Invalid regular expression: {pattern[:80]} is too complex")
    return pattern


def _weight(pattern: str) -> int:
    """Weigh the repeats and choices; to repeat a whole group, or what a group matched, is always too much."""
    too_much = MAX_REPEATS * CHOICES_PER_REPEAT + 1
    tokens = _TOKENS.findall(pattern)
    weight = 0
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token in ("*", "+") or (token.startswith("{") and len(token) > 1):
            weight += too_much if before == ")" else CHOICES_PER_REPEAT
        elif token in ("?", "|"):
            weight += 0 if before in ("(", "*", "+", "?") else 1
        elif len(token) == 2 and token[0] == "\\" and token[1].isdigit():
            weight += too_much
    return weight
