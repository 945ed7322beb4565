"""Pages, decisions, and docstrings of messages, the domain and ports name who acts by a noun of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/skep"
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
PORTS = [
    SOURCE / "compute/drivers/base.py",
    SOURCE / "compute/drivers/capabilities.py",
    SOURCE / "neighbours/identity/base.py",
    SOURCE / "neighbours/images/base.py",
    SOURCE / "placement/filters/abilities.py",
    SOURCE / "placement/filters/base.py",
    SOURCE / "placement/weighers/base.py",
    SOURCE / "synchronizer/base.py",
    SOURCE / "transport/base.py",
]
MODULES = sorted([*PORTS, *(path for package in ("messages", "domain") for path in (SOURCE / package).rglob("*.py"))])

VAGUE = re.compile(r"\b(?:nobody|somebody|anybody|whoever|that which)\b", re.IGNORECASE)
QUOTED = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def vague_words(text: str) -> list[str]:
    """Return them, but for those in code: log events and commands stay as they are."""
    return VAGUE.findall(QUOTED.sub("", text))


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_who_acts(page: Path) -> None:
    assert vague_words(page.read_text()) == []


def test_docstrings_name_who_acts() -> None:
    found = {str(path.relative_to(SOURCE)): vague_words(" ".join(docstrings(path))) for path in MODULES}
    assert {path: words for path, words in found.items() if words} == {}


def test_vague_words_are_found_outside_code() -> None:
    assert vague_words("Nobody answers; `nobody serves`, ```\nwhoever\n```, that which is.") == ["Nobody", "that which"]
