"""What the metadata of an aggregate may say to the scheduler; any other key is anybody's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from skep.api.extra_specs import A_TRAIT, is_trait
from skep.domain.invalid_input import invalid_field

_AMOUNTS = re.compile(
    r"(cpu|ram|disk)_allocation_ratio|reserved_host_cpus|reserved_host_memory_mb|reserved_host_disk_mb"
)
_COUNTS = ("max_instances_per_host", "max_io_ops_per_host")
_MULTIPLIER = "_weight_multiplier"
_TRAIT = "trait:"
_LARGEST = 1e15
"""Of ratios, reserves and multipliers, of either sign: the scheduler compares sums of products with them."""


def check_metadata(path: str, metadata: Mapping[str, str | None]) -> None:
    """Check what is set; None removes a key. `path`: where it stands in the body.

    Raises BadRequest naming the first key whose value its filter, weigher or pre-filter could not read. (Nova takes
    anything, and falls back to the configured number when hosts are chosen.)
    """
    for key, value in metadata.items():
        expected = None if value is None else _expected(key, value)
        if expected is not None:
            raise invalid_field(f"{path}.{key}", value, expected)


def _expected(key: str, value: str) -> str | None:
    """Return what the value should have been; None where it is good."""
    if _AMOUNTS.fullmatch(key):
        return None if 0 <= _number(value) <= _LARGEST else "a number, at least 0"
    if key.endswith(_MULTIPLIER):
        return None if abs(_number(value)) <= _LARGEST else "a number"
    if key in _COUNTS:
        return None if re.fullmatch("[0-9]{1,9}", value) else "a whole number, at least 0"
    if key.startswith(_TRAIT) and not is_trait(key.removeprefix(_TRAIT)):
        return f"after {_TRAIT} {A_TRAIT}"
    if key.startswith(_TRAIT) and value != "required":
        return "required"
    return None


def _number(text: str) -> float:
    """Return the number; NaN, with which nothing compares, where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
