"""What texts may say: of names which characters, none that would end a line, hide another name, or that a database does
not take; of failures what users may read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from skep.domain.errors import BadRequest

UNSEEN = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff"
"""Characters that cannot be seen, as what stands between the brackets of a regular expression."""
_JSON = msgspec.json.Encoder(enc_hook=repr)
_NAMED = re.compile(r"(?:\b([Hh])ost )?([\w-]+(?:\.[\w-]+)*)")
"""A word that may be the name of a host, with the noun before it."""
_LINES = frozenset("\t\n\r")
"""In texts, such as the message of a failure, lines may end."""


def without_hosts(text: str, hosts: Collection[str]) -> str:
    """Return what a host said for a user who may not know how hosts are called."""

    def told(found: re.Match[str]) -> str:
        return found[0] if found[2] not in hosts else "A host" if found[1] == "H" else "a host"

    return _NAMED.sub(told, text)


def has_control_characters(text: str, *, lines: bool = False) -> bool:
    """Tell whether a text has a control character; those that only begin lines and columns are let through if asked."""
    if text.isprintable():
        return False
    return any((ord(one) < 32 or 127 <= ord(one) < 160) and not (lines and one in _LINES) for one in text)


def refuse_control_characters(value: Any, field: str, *, lines: bool = False) -> None:
    """Look through all texts of a value, be it a struct, a mapping or a list; names of its keys too.

    Raises BadRequest naming the field.
    """
    if not _all_printable(value):
        _refuse(value, field, lines=lines)


def _all_printable(value: Any) -> bool:
    """Tell whether nothing need be looked at more closely: nearly always, and found out without naming any field.

    JSON escapes control characters, so a value whose JSON is ASCII without a backslash has none but DEL.
    """
    try:
        encoded = _JSON.encode(value)
    except (TypeError, ValueError):
        return False
    return encoded.isascii() and b"\\" not in encoded and b"\x7f" not in encoded


def _refuse(value: Any, field: str, *, lines: bool) -> None:
    if isinstance(value, str):
        if has_control_characters(value, lines=lines):
            raise BadRequest(f"{field}: expected no control characters, found {value[:80]!r}")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _refuse(getattr(value, name), f"{field}.{name}" if field else name, lines=lines)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse(key, f"{field}: a key", lines=lines)
            _refuse(inner, f"{field}.{key}", lines=lines)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _refuse(inner, field, lines=lines)
