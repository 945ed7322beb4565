"""Sets of CPUs as operators write them: `0-3,^2,7`."""

from __future__ import annotations

import re

from skep.domain.invalid_input import invalid_property

MOST_CPUS = 4096
_EXPECTED = f"a set of CPUs below {MOST_CPUS}, as 0-3,^2,7"
_NUMBER = re.compile("[0-9]{1,9}")


def cpu_set(key: str, text: str) -> tuple[int, ...]:
    """Return the numbers in ascending order; `^` leaves out what another part names.

    Raises BadRequest naming `key`.
    """
    taken: set[int] = set()
    left_out: set[int] = set()
    for part in text.split(","):
        into, numbers = (left_out, part[1:]) if part.strip().startswith("^") else (taken, part)
        first, dash, last = numbers.strip().lstrip("^").partition("-")
        if not _NUMBER.fullmatch(first.strip()) or (dash and not _NUMBER.fullmatch(last.strip())):
            raise invalid_property(key, text, _EXPECTED)
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MOST_CPUS:
            raise invalid_property(key, text, _EXPECTED)
        into.update(range(low, high + 1))
    return tuple(sorted(taken - left_out))
