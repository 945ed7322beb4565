"""What operators publish of cells and aggregates, as the table of hosts holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_ZONE = "nova"
ZONE_KEY = "availability_zone"
"""The key of an aggregate's metadata that puts its hosts into a zone."""


@dataclass(slots=True)
class CellFlags:
    """What is known of one cell."""

    code: int
    known: bool = False
    """The operator has named it."""
    disabled: bool = False
    asserted: bool = False
    living: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: hosts by name, and its metadata."""

    hosts: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
