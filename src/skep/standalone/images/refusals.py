"""What the image store refuses because it would become too large, by the limit that says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from skep.domain.errors import TooLarge

LIMITS = ("images", "bytes", "tags", "properties", "property_bytes", "members", "size", "disk")
"""Quotas of a project, quotas of an image, the largest image, room on the disk."""


class Beyond(TooLarge):
    """A refusal (413) that names its limit, one of `LIMITS`."""

    def __init__(self, limit: str, text: str) -> None:
        self.limit = limit
        super().__init__(text)


@contextlib.contextmanager
def told(said: Callable[[str], None]) -> Iterator[None]:
    """Tell the limit of a refusal that passes."""
    try:
        yield
    except Beyond as error:
        said(error.limit)
        raise
