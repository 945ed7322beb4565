"""The hint `query`: a condition on the attributes of hosts (`domain/host_queries.py`)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import msgspec
import numpy as np

from skep.domain.host_queries import Attribute, Compared, ConstantValue, Joined, Operand, Query, parse
from skep.placement.filters.base import Filter
from skep.placement.hosts.attributes import PASSING, Values, attribute
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "in": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def written(request: PlacementRequest) -> str:
    """Return the query as text."""
    hint = request.spec.scheduler_hints.get("query")
    return hint if isinstance(hint, str) else msgspec.json.encode(hint).decode()


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts that satisfy the query; nobody where it is none (the API refuses such)."""
    query = _read(written(request))
    return hosts.none() if query is None else _Asked(hosts).satisfying(query)


def if_empty(hosts: HostView, request: PlacementRequest) -> Mask | None:
    """Let through hosts that would satisfy the query; None where it asks for what an empty host need not have."""
    query = _read(written(request))
    return None if query is not None and _names_passing(query) else passes(hosts, request)


def _names_passing(query: Query) -> bool:
    match query:
        case Compared(_, operands):
            return any(isinstance(one, Attribute) and one.path[0] in PASSING for one in operands)
        case Joined(_, parts):
            return any(map(_names_passing, parts))
        case _:
            return False


@lru_cache(maxsize=256)
def _read(text: str) -> Query | None:
    try:
        return parse(text)
    except ValueError:
        return None


class _Asked:
    """Hosts of which a query asks; what it asks for several times is looked up once."""

    def __init__(self, hosts: HostView) -> None:
        self._hosts = hosts
        self._found: dict[Attribute, Values] = {}

    def satisfying(self, query: Query) -> Mask:
        match query:
            case Compared(how, (first, *others)):
                masks = [_compared(_COMPARE[how], self._values(first), self._values(other)) for other in others]
                return _any(masks) if how == "in" else _all(masks)
            case Joined(how, parts):
                masks = [self.satisfying(part) for part in parts]
                return _any(masks) if how == "or" else ~_all(masks) if how == "not" else _all(masks)
            case _:
                return self._hosts.all()

    def _values(self, operand: Operand) -> Values:
        match operand:
            case Attribute(path):
                if operand not in self._found:
                    self._found[operand] = attribute(self._hosts, path)
                return self._found[operand]
            case ConstantValue(value):
                return Values([value], np.zeros(len(self._hosts), dtype=np.intp))


def _any(masks: list[Mask]) -> Mask:
    return reduce(np.logical_or, masks)


def _all(masks: list[Mask]) -> Mask:
    return reduce(np.logical_and, masks)


def _compared(how: Callable[[Any, Any], bool], one: Values, other: Values) -> Mask:
    """Compare two operands on each host; what a host does not have compares with nothing."""
    pairs, codes = np.unique(one.codes * len(other.distinct) + other.codes, return_inverse=True)
    verdicts = []
    for pair in pairs.tolist():
        number, rest = divmod(pair, len(other.distinct))
        verdicts.append(_holds(how, one.distinct[number], other.distinct[rest]))
    mask: Mask = np.array(verdicts, dtype=np.bool_)[codes]
    return mask


def _holds(how: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    try:
        return bool(how(left, right))
    except TypeError:
        # Nothing orders a text and a number.
        return False


FILTER = Filter(
    name="JsonFilter",
    passes=passes,
    stage=lambda _: "hint query",
    applies=lambda request: bool(request.spec.scheduler_hints.get("query")),
    if_empty=if_empty,
    shaped_by=lambda _, request: written(request) if request.spec.scheduler_hints.get("query") else None,
)
