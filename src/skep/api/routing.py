"""From method and path to the row of the route table.

Literal words go before `{names}`; where the literal path does not take the method, the path with names is tried too
(`DELETE /servers/detail` looks for a server of that name).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from skep.api.absent_paths import absent, given_up
from skep.api.microversions import MAXIMUM, MINIMUM, text
from skep.api.requests import Handler
from skep.api.schemas.validation import AnswerShape, Body, Query
from skep.domain.errors import BadRequest, NotFound, SkepError, Withdrawn

PROJECT_ID = re.compile(r"[0-9a-f-]+")
"""What may stand for the project in `/v2.1/{project_id}/servers` (Nova's default of project_id_regex)."""

ALIASES: dict[str, tuple[str, int]] = {"os-volumes_boot": ("servers", 102)}
"""First word of a path -> another one that it stands for, and the last microversion in which it does.

So far as Nova serves it: for the list, for one thing and for its actions, and for nothing else below it.
"""

NO_QUERY = Query(closed_since=102)


@dataclass(frozen=True, slots=True)
class Route:
    """One row: what is served, since and until when, to whom, and how it looks."""

    method: str
    path: str
    handler: Handler
    rule: str
    """Name of the policy rule."""
    _: KW_ONLY
    status: int = 200
    """Of a success."""
    partly: int | None = None
    """Of another success: for some of what was asked only, or for what was so before. Its answer has the same shape."""
    since: int = MINIMUM
    until: int = MAXIMUM
    action: str | None = None
    """Of several rows of one path that differ in the body's only key, which this is: `os-start`."""
    body: Body | None = None
    query: Query = NO_QUERY
    response: AnswerShape | None = None
    target: Literal["caller", "object"] = "caller"
    """`caller`: the rule is checked before the handler, as if the caller owned the thing. `object`: the handler checks
    it with `request.authorize(...)` as soon as it knows whose thing it is."""
    intake: bool = False
    """Takes in new work: answered 503 while the backlog is at its limit."""

    def at(self, version: int) -> bool:
        """Tell whether the route exists at a microversion."""
        return self.since <= version <= self.until


class MethodNotAllowed(SkepError):
    """The path exists but does not take the method (405)."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = tuple(sorted(set(allowed)))
        super().__init__("The method specified is not allowed for this resource.")


@dataclass(frozen=True, slots=True)
class Match:
    """What was found for a path: the rows (several where an action decides) and the values of the names."""

    routes: tuple[Route, ...]
    params: dict[str, str]
    project_id: str | None
    elsewhen: frozenset[str | None] = frozenset()
    """Actions that the path has at other microversions only."""
    version: int = MINIMUM

    def route(self, action: str | None = None) -> Route:
        """Return the row; the one of `action` where that decides.

        Raises BadRequest for an action that nobody knows, NotFound for one of other microversions.
        """
        if self.routes[0].action is None:
            return self.routes[0]
        for route in self.routes:
            if route.action == action:
                return route
        if action is not None and action in self.elsewhen:
            raise _unsupported(self.version)
        raise BadRequest(f"There is no such action: {(action or '')[:80]}")

    @property
    def by_action(self) -> bool:
        """Whether the body's only key decides."""
        return self.routes[0].action is not None


@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict)
    named: _Node | None = None
    methods: dict[str, list[Route]] = field(default_factory=dict)


class Router:
    """The route table, arranged for look-ups."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        self._names: dict[int, tuple[str, ...]] = {}
        for route in self.routes:
            self._add(route)

    def find(self, method: str, segments: list[str], version: int) -> Match:
        """Find the rows for the words of a path behind `/v2.1`.

        Raises NotFound where there is no such path, or not at this microversion; MethodNotAllowed; Withdrawn for what
        Nova has given up.
        """
        project_id = None
        if len(segments) > 1 and segments[0] not in self._root.literal and PROJECT_ID.fullmatch(segments[0]):
            project_id, segments = segments[0], segments[1:]
        segments = _meant(segments, version)
        nodes = _ends(self._root, segments, 0)
        allowed: list[str] = []
        for node, values in nodes:
            rows = node.methods.get(method)
            if rows is None:
                allowed += node.methods
                continue
            there = tuple(row for row in rows if row.at(version))
            if there:
                params = dict(zip(self._names[id(there[0])], values, strict=True))
                if len(there) == len(rows):
                    return Match(there, params, project_id)
                elsewhen = frozenset(row.action for row in rows) - {row.action for row in there}
                return Match(there, params, project_id, elsewhen, version)
            raise _unsupported(version)
        gone = given_up(method, segments)
        if gone is not None:
            raise Withdrawn(f"This resource is no longer available: {gone} were given up.")
        missing = absent(segments)
        if allowed and missing is None:
            raise MethodNotAllowed(allowed)
        if missing is not None:
            noun, last = missing
            if version > last:
                raise _unsupported(version)
            raise NotFound(f"The resource could not be found: {noun} are not part of this release.")
        raise NotFound("The resource could not be found.")

    def _add(self, route: Route) -> None:
        node = self._root
        names = []
        for part in route.path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                node.named = node.named or _Node()
                node = node.named
            else:
                node = node.literal.setdefault(part, _Node())
        node.methods.setdefault(route.method, []).append(route)
        self._names[id(route)] = tuple(names)


def _ends(node: _Node, segments: list[str], at: int) -> list[tuple[_Node, list[str]]]:
    """Return the nodes that the words lead to, those with more literal words first, with the named values."""
    if at == len(segments):
        return [(node, [])] if node.methods else []
    found: list[tuple[_Node, list[str]]] = []
    word = segments[at]
    literal = node.literal.get(word)
    if literal is not None:
        found = _ends(literal, segments, at + 1)
    if node.named is not None and word:
        found = found + [(end, [word, *values]) for end, values in _ends(node.named, segments, at + 1)]
    return found


def _meant(segments: list[str], version: int) -> list[str]:
    """Return the words of the path that an alias stands for, or the same ones. Raises NotFound for one that is over."""
    if not segments or segments[0] not in ALIASES or len(segments) > 3 or segments[2:] not in ([], ["action"]):
        return segments
    word, last = ALIASES[segments[0]]
    if version > last:
        raise _unsupported(version)
    return [word, *segments[1:]]


def _unsupported(version: int) -> NotFound:
    return NotFound(f"API version '{text(version)}' is not supported on this method.")
