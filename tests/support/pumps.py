"""Values of any size that a client may send where the API expects something else, or less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PUMPS: dict[str, Callable[[int], Any]] = {
    "a long text": lambda n: "a" * n,
    "a text of what nobody can see": lambda n: "a" * n + "\x01",
    "many digits": lambda n: "9" * n,
    "a long number": lambda n: 10**n,
    "many numbers": lambda n: [1] * n,
    "many texts": lambda n: [f"t{number}" for number in range(n)],
    "many objects": lambda n: [{"uuid": "x", "name": ""} for _ in range(n)],
    "many keys": lambda n: {f"k{number}": "v" for number in range(n)},
    "many keys without right values": lambda n: {f"k{number}": number for number in range(n)},
    "many keys that are none": lambda n: {f"k€{number}": "v" for number in range(n)},
    "deep": lambda n: _nested(min(n, 60)),
}


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value
