"""What a whole description says, gathered from all that is inside it."""

from __future__ import annotations

from collections.abc import Iterator

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.schemas.fields import Field, Type


def breakpoints(description: Type) -> tuple[int, ...]:
    """Return, in order, the microversions at which the description changes; the first is the minimum."""
    found = {MINIMUM}
    for part in _parts(description):
        if isinstance(part, Type):
            found.update(part.changes)
        else:
            found.add(part.since)
            if part.until < MAXIMUM:
                found.add(part.until + 1)
    return tuple(sorted(found))


def secret_names(description: Type) -> frozenset[str]:
    """Return the names of all secret fields in the description."""
    return frozenset(part.name for part in _parts(description) if isinstance(part, Field) and part.secret)


def _parts(description: Type) -> Iterator[Type | Field]:
    todo: list[Type | Field] = [description]
    while todo:
        part = todo.pop()
        yield part
        if isinstance(part, Field):
            todo.append(part.type)
        else:
            todo.extend(part.inner())
