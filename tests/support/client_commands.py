"""Which commands of the `openstack` client tests run, and what `docs/clients.md` says of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
TESTS = ROOT / "tests" / "functional"
GROUPS = ("openstack.common", "openstack.compute.v2", "openstack.image.v2", "openstack.identity.v3")
NOUNS = (
    "server",
    "keypair",
    "flavor",
    "aggregate",
    "hypervisor",
    "compute service",
    "compute agent",
    "host",
    "availability zone",
    "usage",
    "quota",
    "limits",
    "console",
    "image",
    "domain",
    "project",
    "user",
    "group",
    "role",
    "application credential",
    "access rule",
)
"""What the page is about; what the client calls by other nouns belongs to other services, and so do `image metadef`."""


def known_commands() -> dict[str, set[str]]:
    """Return what the installed client can do: a noun of the page -> the rest of each of its commands."""
    found: dict[str, set[str]] = {noun: set() for noun in NOUNS}
    for group in GROUPS:
        for entry in entry_points(group=group):
            command = entry.name.replace("_", " ")
            for noun in NOUNS:
                if command.startswith(f"{noun} ") and not command.startswith("image metadef"):
                    found[noun].add(command.removeprefix(f"{noun} "))
    return found


def told() -> Iterator[tuple[str, set[str], set[str]]]:
    """Give the rows of the page: a noun, what works of it, what is refused."""
    for line in PAGE.read_text().splitlines():
        if row := re.fullmatch(r"\| `([^`]+)` \|([^|]*)\|([^|]*)\|", line):
            yield row[1], set(re.findall(r"`([^`]+)`", row[2])), set(re.findall(r"`([^`]+)`", row[3]))


def is_run(command: str, typed: list[tuple[str, ...]]) -> bool:
    """Return whether the words of a command stand one behind the other in what tests type."""
    words = tuple(command.split())
    return any(words == line[at : at + len(words)] for line in typed for at in range(len(line) - len(words) + 1))


def typed_by_tests() -> list[tuple[str, ...]]:
    """Return what tests type: arguments of calls and rows of tables, each word by itself, or whole command lines.

    What is only said in a text or a comment does not count.
    """
    trees = [ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))]
    return [line for tree in trees for node in ast.walk(tree) if (line := _typed(node))]


def _typed(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Call(args=words) | ast.Tuple(elts=words) | ast.List(elts=words):
            return tuple(_word(word) for word in words)
        case ast.Constant(value=str(line)) if line.startswith("openstack "):
            return tuple(line.split()[1:])
    return ()


def _word(node: ast.expr) -> str:
    """Return a word as it stands there; an empty one for what is put together when the test runs."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
