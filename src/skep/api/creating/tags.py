"""The tags that a request names."""

from __future__ import annotations

from collections.abc import Iterable


def distinct_tags(given: Iterable[str] | None) -> tuple[str, ...]:
    """Return tags as a server has them: in the order of the request, each once."""
    return tuple(dict.fromkeys(given or ()))
