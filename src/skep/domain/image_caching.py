"""Images that hosts fetch before servers need them: what a host is told, and what it answers of each image."""

from __future__ import annotations

import enum

import msgspec

MOST_IMAGES = 100
"""Of one request."""


class CacheOutcome(enum.StrEnum):
    """What came of one image on one host (Nova's words)."""

    CACHED = "cached"
    EXISTING = "existing"
    """It was there already."""
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    """The host keeps no images."""


IN_THE_CACHE = frozenset({CacheOutcome.CACHED, CacheOutcome.EXISTING})


class CachedImage(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of one image."""

    id: str
    outcome: CacheOutcome
    reason: str = ""
    """Why it is not there."""


class SealedCaching(msgspec.Struct, frozen=True, kw_only=True):
    """What the compute API seals, so that a conductor of the cell cannot have a host read other images."""

    question: str
    host: str
    images: tuple[str, ...]
