"""Python's own engine for regular expressions goes back in a text: only what stands in the code runs on it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import skep

SOURCES = Path(skep.__file__).parent
FUNCTIONS = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
MENTIONED = re.compile(r"\bre\s*\.")
"""What stands in each file that calls one of them."""
OF_TABLES = {"api/extra_specs.py": 2}
"""Where expressions of a table in the same file are compiled, and how often."""


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in FUNCTIONS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
        ):
            yield node


def _constants(tree: ast.Module) -> set[str]:
    """Return the names of what is set once, at the top of a module, or imported there."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name) and target.id.isupper()}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.name.isupper()}
    return names


def _stands_in_the_code(written: ast.expr, constants: set[str]) -> bool:
    match written:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in constants
        case ast.JoinedStr(values=parts):
            return all(_stands_in_the_code(part, constants) for part in parts)
        case ast.FormattedValue(value=value):
            return _stands_in_the_code(value, constants)
        case ast.BinOp(left=left, right=right):
            return _stands_in_the_code(left, constants) and _stands_in_the_code(right, constants)
    return False


def test_no_expression_from_outside_runs_on_a_backtracking_engine() -> None:
    looked_at = 0
    foreign: dict[str, int] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if not MENTIONED.search(text):
            continue  # to parse all sources takes seconds
        tree = ast.parse(text)
        constants = _constants(tree)
        for call in _calls(tree):
            looked_at += 1
            if not _stands_in_the_code(call.args[0], constants):
                name = path.relative_to(SOURCES).as_posix()
                foreign[name] = foreign.get(name, 0) + 1
    assert looked_at > 20
    assert foreign == OF_TABLES
