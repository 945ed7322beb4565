"""What the pages about the code's shape name is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.domain.builds import STEPS

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "skep"
PAGES = ("ARCHITECTURE.md", "docs/build.md")

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|md|toml|json)|(?:[\w-]+/)+[\w-]*")
DOTTED = re.compile(r"skep(?:\.\w+)+")
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def named_files(text: str) -> Iterator[str]:
    for code in CODE.findall(text):
        if FILE.fullmatch(code):
            yield code


def is_there(name: str) -> bool:
    """A path is said from the root, `src` or `src/skep`; the name of a module alone stands for any of that name."""
    if any((start / name).exists() for start in (ROOT, ROOT / "src", SOURCES)):
        return True
    return "/" not in name and any(SOURCES.rglob(name))


def resolves(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or something in one."""
    module, _, attribute = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return False


def anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(page.read_text())}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_and_name_on_a_page_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    files, names = sorted(set(named_files(text))), sorted(set(DOTTED.findall(text)))
    assert len(files) >= 2, "the page names files, and none was found"
    assert [name for name in files if not is_there(name)] == []
    assert [name for name in names if not resolves(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    origin = ROOT / page
    links = [(path, anchor) for path, anchor in LINK.findall(origin.read_text()) if "://" not in path]
    assert links
    lost = [
        (path, anchor)
        for path, anchor in links
        if not (target := origin.parent / path).exists() or (anchor and anchor not in anchors(target))
    ]
    assert lost == []


def test_each_decision_has_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [page.name.partition("-")[0] for page in pages]
    assert len(numbers) > 40
    assert sorted(set(numbers)) == numbers
    assert [page.name for page, number in zip(pages, numbers, strict=True) if str(int(number)) not in title(page)] == []


def title(page: Path) -> str:
    return page.read_text().partition("\n")[0]


def test_a_path_that_is_not_there_is_found() -> None:
    assert list(named_files("`make up` `domain/` `a/b.py` `x.y` `builds.py`")) == ["domain/", "a/b.py", "builds.py"]
    assert not is_there("domain/no_such.py")
    assert not is_there("no_such.py")
    assert not resolves("skep.domain.builds.NO_SUCH")


def test_the_page_on_builds_has_a_row_for_each_step_in_its_order() -> None:
    assert ROW.findall((ROOT / "docs" / "build.md").read_text()) == list(STEPS)
