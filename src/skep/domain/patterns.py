"""Regular expressions that users give, matched in time that grows with the text and not faster.

They run on RE2, which walks through a text once whatever the expression is. What no such engine can do, look-around and
back references, is refused.
"""

from __future__ import annotations

import re2

MAX_LENGTH = 255
"""Characters of an expression."""
MAX_MEMORY = 65_536
"""Bytes of an expression when it is compiled: they bound the work for each character of a text, and repeats of repeats
need many."""
_AHEAD = "(?="


class Pattern:
    """A regular expression that is looked for anywhere in a text, as databases do."""

    def __init__(self, text: str) -> None:
        """Compile it. Raises ValueError saying what is wrong with it."""
        if len(text) > MAX_LENGTH:
            raise ValueError(f"at most {MAX_LENGTH} characters")
        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise ValueError(_reason(error)) from None
        self.text = text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @property
    def steps(self) -> int:
        """How many steps it takes at most for each byte of a text."""
        return int(self._compiled.programsize)

    def found_in(self, text: str) -> bool:
        """Tell whether it matches any part of a text."""
        return self._compiled.search(text) is not None

    def begins(self, text: str) -> bool:
        """Tell whether it matches a text from its beginning."""
        return self._compiled.match(text) is not None


def parted(text: str) -> list[str]:
    """Return the expressions that a text must all match from its beginning, for one that begins with look-aheads.

    `(?=.*[0-9])(?=.*[a-z]).{7,}` is three: RE2 has no look-ahead, but what is looked for at the beginning can be asked
    for one after the other. Raises ValueError where a look-ahead does not end.
    """
    rest, parts = text.removeprefix("^"), []
    while rest.startswith(_AHEAD):
        end = _closing(rest)
        parts.append(rest[len(_AHEAD) : end])
        rest = rest[end + 1 :]
    return [*parts, rest]


def _closing(text: str) -> int:
    """Return where the bracket closes with which a text begins. Raises ValueError where it does not."""
    depth, in_class, at = 0, False, 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
            at += text[at + 1 : at + 2] == "^"
            at += text[at + 1 : at + 2] == "]"  # there it is a letter of the class
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if not depth:
                return at
        at += 1
    raise ValueError("missing )")


def _reason(error: Exception) -> str:
    """Return what RE2 says, which it says in bytes."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    if "pattern too large" in text or "repetition size" in text:
        return f"one that repeats less: {text}"
    return f"one without look-around and back references (the syntax of RE2): {text}"
