"""The page that lists the routes of the embedded services names each, and whether it works.

python -m tests.unit.standalone.test_route_tables      # writes the tables anew, from the root of the clone
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from skep.standalone.identity.app import ROUTES as IDENTITY
from skep.standalone.identity.handlers import roles
from skep.standalone.images.app import ROUTES as IMAGES
from skep.standalone.images.handlers import imports

PAGE = Path(__file__).parents[3] / "docs" / "identity-routes.md"
REFUSED = {
    roles.change_implied: "refused with 403: which roles imply others is fixed",
    imports.start: "refused with 400 that names the method",
    imports.stage: "refused with 400",
    imports.show_stores: "refused with 404, as by a Glance with one store",
}
SERVICES: dict[str, Iterable[tuple[str, str, Any]]] = {"Identity": IDENTITY, "Images": IMAGES}


def table(routes: Iterable[tuple[str, str, Any]]) -> str:
    """Return one row for each path and what becomes of its methods."""
    rows: dict[tuple[str, str], list[str]] = {}
    for method, path, handler in routes:
        rows.setdefault((path, REFUSED.get(handler, "works")), []).append(method)
    lines = [f"| `{path}` | {' '.join(sorted(methods))} | {state} |" for (path, state), methods in sorted(rows.items())]
    return "\n".join(["| path | methods | state |", "|---|---|---|", *lines])


def _section(name: str) -> str:
    found = re.search(rf"^## {name}\n\n(.*?)(?=\n\n|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1].strip()


@pytest.mark.parametrize("name", SERVICES)
def test_the_page_lists_every_route(name: str) -> None:
    assert _section(name) == table(SERVICES[name]), "run `python -m tests.unit.standalone.test_route_tables`"


if __name__ == "__main__":
    text = PAGE.read_text()
    for service, routes in SERVICES.items():
        text = text.replace(_section(service), table(routes))
    PAGE.write_text(text)
