"""msgspec is told of types in one module: elsewhere two threads could meet while it takes notes of the same type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import skep

SOURCES = Path(skep.__file__).parent
HERE = "domain/decoding.py"
MENTIONED = re.compile(r"Decoder\(|\.decode\(|\.convert\(")
"""What stands in each file that could tell it of a type."""


def _tells_of_types(tree: ast.AST) -> Iterator[int]:
    """Return the lines where msgspec itself decodes into a type, or makes a decoder of one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).startswith("msgspec."):
            continue
        keywords = {keyword.arg for keyword in node.keywords}
        match ast.unparse(node.func).rpartition(".")[2]:
            case "Decoder" if node.args or keywords:
                yield node.lineno
            case "decode" if "type" in keywords:
                yield node.lineno
            case "convert":
                yield node.lineno


def test_types_are_told_in_one_module() -> None:
    found: dict[str, list[int]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if MENTIONED.search(text) and (lines := list(_tells_of_types(ast.parse(text)))):
            found[path.relative_to(SOURCES).as_posix()] = lines
    assert len(found.pop(HERE)) == 3
    assert found == {}, "use skep.domain.decoding"
