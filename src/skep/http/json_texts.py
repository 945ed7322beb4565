"""Texts in decoded JSON, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.domain.invalid_input import MAX_SHOWN, shortened

MAX_PATH = 300
"""Characters of a path that an error names."""
NUL = b"\\u0000"
"""How JSON writes the character that PostgreSQL takes in no text."""


def has_nul(text: str) -> bool:
    """Tell whether a text has a NUL character."""
    return "\x00" in text


_Place = tuple[Any, str | int] | None
"""Where a value stands: the place of what holds it, and its key or number there."""


def bad_text(value: Any, bad: Callable[[str], bool]) -> str | None:
    """Return the path of the first text that is bad; a bad key is named by where it stands."""
    todo: list[tuple[_Place, Any]] = [(None, value)]
    while todo:
        place, part = todo.pop()
        if isinstance(part, str):
            if bad(part):
                return _path(place) or "body"
        elif isinstance(part, dict):
            for key, item in part.items():
                if bad(key):
                    return f"{_path(place) or 'body'} (the name of a key)"
                todo.append(((place, key), item))
        elif isinstance(part, list):
            todo.extend(((place, index), item) for index, item in enumerate(part))
    return None


def _path(place: _Place) -> str:
    words: list[str] = []
    while place is not None:
        place, part = place
        words.append(f"[{part}]" if isinstance(part, int) else f".{part[:MAX_SHOWN]}")
    return shortened("".join(reversed(words)).removeprefix("."), MAX_PATH)
