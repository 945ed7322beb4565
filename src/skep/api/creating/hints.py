"""Where the scheduler hints of a request stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from skep.domain.given_hints import Hints, read


def hints(body: dict[str, Any], filters: Collection[str] = ()) -> Hints:
    """Read the hints, which stand beside the server under one of two names. `filters`: those that the operator chose.

    Raises BadRequest for a hint that nothing here can follow, or that makes no sense.
    """
    return read(body.get("os:scheduler_hints") or body.get("OS-SCH-HNT:scheduler_hints") or {}, filters)
