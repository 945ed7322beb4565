"""Query parameters and domain fields that several nouns share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import UnsetType
from starlette.requests import Request

from skep.domain.errors import BadRequest
from skep.http.operations import STRING, parameter

_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda name, part: part in name,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
_NAME_COMPARISONS = {
    **{f"name__{word}": (compare, False) for word, compare in _COMPARISONS.items()},
    **{f"name__i{word}": (compare, True) for word, compare in _COMPARISONS.items()},
}
"""Parameter -> how a name is compared, and whether upper and lower case are the same."""
OF_NAMES = dict.fromkeys(_NAME_COMPARISONS, STRING)
"""Parameters of lists that `with_names` reads."""


class HasName(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...


NamedT = TypeVar("NamedT", bound=HasName)


def with_names(request: Request, found: Sequence[NamedT]) -> list[NamedT]:
    """Return those whose names compare as the query asks, in Keystone's words (`name__contains`)."""
    kept = list(found)
    for key, (compare, is_folded) in _NAME_COMPARISONS.items():
        part = parameter(request, key)
        if part is None:
            continue
        if is_folded:
            kept = [one for one in kept if compare(one.name.casefold(), part.casefold())]
        else:
            kept = [one for one in kept if compare(one.name, part)]
    return kept


def flag(request: Request, name: str) -> bool | None:
    """Return a yes-or-no parameter as Keystone reads it: anything but `0` and `false` is yes; None when absent."""
    value = parameter(request, name)
    return None if value is None else value.lower() not in ("0", "false")


def check_same_id(given: str | UnsetType, known: str | None, field: str) -> None:
    """Refuse an id in a body, but where it repeats the one in the path (`known`), as clients that send all they got do.

    Raises BadRequest.
    """
    if isinstance(given, str) and given != known:
        raise BadRequest(f"{field}: cannot be chosen or changed")
