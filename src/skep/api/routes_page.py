"""The table of resources in docs/api.md, made from the route table and from the list of what is not there.

`python -m skep.api.routes_page docs/api.md` writes it between its marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from skep.api.absent_paths import FAMILIES, AbsentFamily
from skep.api.actions import GONE_ACTIONS
from skep.api.marked_pages import replaced
from skep.api.microversions import MAXIMUM, MINIMUM, text
from skep.api.routes import ROUTES
from skep.api.routing import ALIASES, Route

BEGIN, END = "<!-- routes: made by skep.api.routes_page -->", "<!-- end of routes -->"
HEAD = ("| resource | request | microversions | state |", "|---|---|---|---|")
SERVED, ABSENT, GONE = "served", "not yet: {status}, by name", "given up: 410"


def render() -> str:
    """Return the table: what is served, in the order of the route table, then what is not."""
    served: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for route in ROUTES:
        served.setdefault((_resource(route.path), _request(route), _state(route)), []).append(
            (route.since, route.until)
        )
    lines = [
        _line(resource, request, ", ".join(_range(*one) for one in _joined(sorted(ranges))), state)
        for (resource, request, state), ranges in served.items()
    ]
    return "\n".join([*HEAD, *lines, *map(_of_alias, ALIASES), *map(_of_family, FAMILIES)])


def written_into(page: str) -> str:
    """Return a page with the table between its marks. Raises ValueError where it has no marks."""
    return replaced(page, BEGIN, END, render())


def _resource(path: str) -> str:
    """Return the words of a path, with those below a server behind it: `servers`, `servers/tags`."""
    words = [word for word in path.split("/") if word and not word.startswith("{")]
    return "/".join(words[:2]) if words[0] == "servers" and words[1:2] != ["detail"] else words[0]


def _request(route: Route) -> str:
    action = f" `{route.action}`" if route.action is not None else ""
    return f"`{route.method} {route.path}`{action}"


def _state(route: Route) -> str:
    return GONE if route.action in GONE_ACTIONS else SERVED


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges in order, as one where they meet."""
    first, last = ranges[0]
    for since, until in ranges[1:]:
        if since > last + 1:
            yield first, last
            first = since
        last = max(last, until)
    yield first, last


def _range(since: int, until: int) -> str:
    match since, until:
        case (earliest, latest) if earliest == MINIMUM and latest == MAXIMUM:
            return "all"
        case (earliest, _) if earliest == MINIMUM:
            return f"until {text(until)}"
        case (_, latest) if latest == MAXIMUM:
            return f"since {text(since)}"
    return f"{text(since)} to {text(until)}"


def _of_alias(alias: str) -> str:
    word, last = ALIASES[alias]
    requests = f"`ANY /{alias}`, `/{alias}/detail`, `/{alias}/{{id}}`, `/{alias}/{{id}}/action`"
    return _line(alias, requests, _range(MINIMUM, last), f"{SERVED}, as `/{word}`")


def _of_family(family: AbsentFamily) -> str:
    resource = family.path.removeprefix("/").replace("{id}/", "")
    state = GONE if family.is_gone else ABSENT.format(status=404)
    return _line(resource, f"`{family.methods} {family.path}` ({family.noun})", _range(MINIMUM, family.last), state)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text()))
