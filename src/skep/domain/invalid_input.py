"""One form for all that is wrong with what was asked: which key, what it was, what it should have been.

    Invalid input for field/attribute os:scheduler_hints.cidr. Value: /99. Expected: ...
    Invalid input for extra spec hw:numa_nodes. Value: many. Expected: ...
    Invalid input for image property hw_cpu_policy. Value: shared. Expected: ...

The first is Nova's form too. What is shown of a value is short, and nothing of what holds other values.
"""

from __future__ import annotations

from skep.domain.errors import BadRequest

MAX_SHOWN = 80
"""Characters of a value that a text repeats."""
MAX_KEY = 300


class InvalidHint(BadRequest):
    """What is wrong with a scheduler hint. Who reads hints does not know under which name they were sent."""

    def __init__(self, name: str, value: object, expected: str, *, under: str = "os:scheduler_hints") -> None:
        super().__init__(_text("field/attribute", f"{under}.{name}", value, expected))
        self._said = (name, value, expected)

    def under(self, key: str) -> InvalidHint:
        """Return this error for hints that were sent as `key`."""
        return InvalidHint(*self._said, under=key)


def invalid_field(path: str, value: object, expected: str) -> BadRequest:
    """Return what is wrong with a field of a body; `path` is where it stands in it."""
    return _invalid("field/attribute", path, value, expected)


def invalid_hint(name: str, value: object, expected: str) -> InvalidHint:
    """Return what is wrong with a scheduler hint."""
    return InvalidHint(name, value, expected)


def invalid_property(key: str, value: object, expected: str) -> BadRequest:
    """Return what is wrong with an extra spec of a flavor, or with a property of an image (`hw_...`)."""
    is_of_image = ":" not in key and key.startswith("hw_")
    return invalid_image_property(key, value, expected) if is_of_image else _invalid("extra spec", key, value, expected)


def invalid_image_property(key: str, value: object, expected: str) -> BadRequest:
    """Return what is wrong with a property of an image, whatever its name is like."""
    return _invalid("image property", key, value, expected)


def shown(value: object) -> str:
    """Show a value shortly. What holds other values is not shown: a secret may be among them."""
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, (list, tuple)):
        return "[...]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return "(a number of more than 40 digits)"
    return shortened(str(value), MAX_SHOWN)


def shortened(text: str, limit: int) -> str:
    """Return the text, or its beginning where it is longer than `limit`."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _invalid(kind: str, key: str, value: object, expected: str) -> BadRequest:
    return BadRequest(_text(kind, key, value, expected))


def _text(kind: str, key: str, value: object, expected: str) -> str:
    return f"Invalid input for {kind} {shortened(key, MAX_KEY)}. Value: {shown(value)}. Expected: {expected}"
