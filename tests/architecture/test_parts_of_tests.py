"""Each program that a test needs is installed by `scripts/system-packages`, or every Debian has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERYWHERE = frozenset({"apt-get", "dpkg-deb", "losetup", "nsenter", "unshare"})
"""Of packages that are essential, or part of each Debian: apt, dpkg, mount, util-linux."""
WITH = {"ovsdb-server": "ovs-vswitchd", "ssh-keygen": "ssh"}
"""Programs that come in the package of another one."""
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "needs_part(" in path.read_text())


def needed(tree: ast.AST) -> Iterator[str]:
    """Find what is named in `needs_part("name")`, and in `needs_part(one) for one in ("name", ...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "needs_part":
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
        if isinstance(node, ast.GeneratorExp) and "needs_part(" in ast.unparse(node.elt):
            for each in node.generators:
                names = each.iter.elts if isinstance(each.iter, ast.Tuple) else []
                yield from (one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str))


def installed() -> set[str]:
    """Return the programs and files that the script looks for."""
    lists = (ROOT / "scripts" / "system-packages").read_text().partition("what=${1")[0]
    return {word for line in lists.splitlines() for word in line.partition('="')[2].split() + line.split()}


def test_there_are_such_tests() -> None:
    found = {part for path in TESTS for part in needed(ast.parse(path.read_text()))}
    assert {"busybox", "libvirtd", "nats-server"} <= found


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_test_needs_is_installed(path: Path) -> None:
    parts = {WITH.get(part, part) for part in needed(ast.parse(path.read_text()))}
    assert parts <= installed() | EVERYWHERE
