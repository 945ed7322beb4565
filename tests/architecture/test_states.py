"""Which states belong together stands in the table of states alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import skep
from skep.domain.instances import State

SOURCES = Path(skep.__file__).parent
TABLE = "domain/states.py"
ACTIONS = "domain/actions.py"
"""In which states an action may begin is a fact of the action."""
NAMES = frozenset(state.value for state in State)
QUOTED = re.compile(r"'(\w+)'")
WRITTEN = re.compile(r"\bState\.\w|['\"](?:" + "|".join(NAMES) + r")['\"]")
"""Where a state is written out; a file with fewer than three has no collection of them, and need not be parsed."""


def _states(parts: list[ast.expr]) -> int:
    """Count the states that are written out: `State.X`, `State.X.value`, or their stored names."""
    found = 0
    for part in parts:
        inner = part.value if isinstance(part, ast.Attribute) and part.attr == "value" else part
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "State":
            found += inner.attr in State.__members__
        elif isinstance(inner, ast.Constant):
            found += inner.value in NAMES
    return found


def collections(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which three states or more are written into one collection, or into one text of SQL."""
    for node in ast.walk(tree):
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                written = _states(parts)
            case ast.Dict(keys=keys):
                written = _states([key for key in keys if key is not None])
            case ast.BoolOp(values=values):
                written = _states(
                    [one for value in values if isinstance(value, ast.Compare) for one in value.comparators]
                )
            case ast.Constant(value=str() as text):
                written = len(NAMES & set(QUOTED.findall(text)))
            case _:
                continue
        if written > 2:
            yield node.lineno


def test_no_module_but_the_table_lists_states() -> None:
    lists = {
        path.relative_to(SOURCES).as_posix(): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if "migrations" not in path.parts
        if len(WRITTEN.findall(text := path.read_text())) > 2
        if (lines := list(collections(ast.parse(text))))
    }
    assert len(lists.pop(TABLE)) > 5
    lists.pop(ACTIONS, None)
    assert lists == {}


def test_every_way_to_write_a_list_is_seen() -> None:
    ways = (
        "(State.ACTIVE, State.STOPPED, State.ERROR)",
        "frozenset({State.ACTIVE.value, State.STOPPED.value, State.ERROR.value})",
        "[state.value for state in (State.ACTIVE, State.STOPPED, State.ERROR)]",
        "{State.ACTIVE: 1, State.STOPPED: 2, State.ERROR: 3}",
        "('active', 'stopped', 'error')",
        "text(\"state NOT IN ('active','stopped','error')\")",
        "a is State.ACTIVE or a is State.STOPPED or a is State.ERROR",
    )
    assert [way for way in ways if not list(collections(ast.parse(way)))] == []
    assert [way for way in ways if len(WRITTEN.findall(way)) < 3] == []
    assert not list(collections(ast.parse("(State.ACTIVE, State.STOPPED)")))
