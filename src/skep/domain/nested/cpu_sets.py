"""Sets of CPUs as operators write them: `0-3,^2,7`."""

from __future__ import annotations

from skep.domain.errors import BadRequest

MOST_CPUS = 4096


def cpu_set(key: str, text: str) -> tuple[int, ...]:
    """Return the numbers in ascending order; `^` leaves out what another part names.

    Raises BadRequest naming `key`.
    """
    taken: set[int] = set()
    left_out: set[int] = set()
    for part in text.split(","):
        into, numbers = (left_out, part[1:]) if part.strip().startswith("^") else (taken, part)
        first, dash, last = numbers.strip().lstrip("^").partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise BadRequest(f"{key}: {text[:80]!r} is no set of CPUs.")
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MOST_CPUS:
            raise BadRequest(f"{key}: {text[:80]!r} is no set of CPUs below {MOST_CPUS}.")
        into.update(range(low, high + 1))
    return tuple(sorted(taken - left_out))
