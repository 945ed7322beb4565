"""Where the scheduler hints of a request stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from skep.domain.given_hints import Hints, read
from skep.domain.invalid_input import InvalidHint

NAMES = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")
"""Under which hints may stand; of two the first one counts."""


def hints(body: dict[str, Any], filters: Collection[str] = ()) -> Hints:
    """Read the hints, which stand beside the server under one of two names. `filters`: those that the operator chose.

    Raises BadRequest for a hint that nothing here can follow, or that makes no sense.
    """
    key = sent_as(body)
    try:
        return read(body.get(key) or {}, filters)
    except InvalidHint as error:
        raise error.under(key) from error


def sent_as(body: Mapping[str, Any]) -> str:
    """Return under which name the hints of a request stand: by it errors call them."""
    return next((name for name in NAMES if name in body), NAMES[0])
