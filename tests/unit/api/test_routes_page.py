"""The table of resources in docs/api.md says what the router does."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.api import routes_page
from skep.api.absent_paths import FAMILIES, AbsentFamily
from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.api.routing import Router
from skep.domain.errors import NotFound, Withdrawn

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
ROUTER = Router(ROUTES)


def _words(family: AbsentFamily) -> list[str]:
    return family.path.replace("{id}", "0a").strip("/").split("/")


def _method(family: AbsentFamily) -> str:
    return "GET" if family.methods == "ANY" else family.methods.split(", ")[0]


def test_the_page_has_the_table_of_resources() -> None:
    page = PAGE.read_text()
    assert page == routes_page.written_into(page), "run: python -m skep.api.routes_page docs/api.md"
    with pytest.raises(ValueError, match="the page has no lines"):
        routes_page.written_into("a page")


@pytest.mark.parametrize("family", [one for one in FAMILIES if not one.is_gone], ids=lambda family: family.path)
def test_what_is_not_there_yet_is_refused_by_name(family: AbsentFamily) -> None:
    with pytest.raises(NotFound, match=f"{family.noun} are not part of this release"):
        ROUTER.find(_method(family), _words(family), family.last)
    if family.last < MAXIMUM:
        with pytest.raises(NotFound, match="not supported"):
            ROUTER.find(_method(family), _words(family), family.last + 1)


@pytest.mark.parametrize("family", [one for one in FAMILIES if one.is_gone], ids=lambda family: family.path)
def test_what_was_given_up_is_so_at_every_microversion(family: AbsentFamily) -> None:
    for version in (1, MAXIMUM):
        for method in family.methods.split(", ") if family.methods != "ANY" else ["GET", "PUT"]:
            with pytest.raises(Withdrawn, match=family.noun):
                ROUTER.find(method, _words(family), version)


def test_ranges_that_meet_are_one() -> None:
    assert list(routes_page._joined([(1, 9), (10, 20), (30, MAXIMUM)])) == [(1, 20), (30, MAXIMUM)]
