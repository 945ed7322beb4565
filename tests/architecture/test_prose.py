"""Pages, and docstrings of messages and the domain, name who acts by a noun of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
MODULES = sorted(path for package in ("messages", "domain") for path in (ROOT / "src/skep" / package).rglob("*.py"))
NOT_YET = {"domain/actions.py", "domain/instances.py"}
"""Modules whose docstrings still use such words."""

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
    found = {str(path.relative_to(ROOT / "src/skep")): vague_words(" ".join(docstrings(path))) for path in MODULES}
    assert {path: words for path, words in found.items() if words and path not in NOT_YET} == {}


def test_vague_words_are_found_outside_code() -> None:
    assert vague_words("Nobody answers; `nobody serves`, ```\nwhoever\n```, that which is.") == ["Nobody", "that which"]
