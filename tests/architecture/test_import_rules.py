"""The layers of the design hold: what may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE

ROOT = Path(__file__).parents[2]
PLACEMENT = ROOT / "src" / "skep" / "placement"

PURE = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "fnmatch",
    "functools",
    "hashlib",
    "heapq",
    "ipaddress",
    "itertools",
    "math",
    "operator",
    "re",
    "types",
    "typing",
}
"""Modules of the standard library without a clock, dice or I/O."""


APART = {
    (PLACEMENT / "plugins" / "loading.py", "skep.entry_points"),  # looked up once, when a scheduler starts
}


def test_layers() -> None:
    command = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports; several rules ask, and to parse all sources takes seconds."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return tuple(found)


@cache
def names_imported(path: Path) -> tuple[tuple[str, str], ...]:
    """Return each name that a file imports from a module."""
    return tuple(
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def is_pure(module: str) -> bool:
    top = module.partition(".")[0]
    ours = module.startswith(("skep.domain", "skep.placement"))
    return ours or top in PURE or top in {"numpy", "msgspec", "os_traits"}


def test_placement_is_arithmetic_over_columns() -> None:
    """The engine imports the domain, NumPy, msgspec (for structs) and names of traits."""
    offences = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted(PLACEMENT.rglob("*.py"))
        for module in imported(path)
        if not is_pure(module) and (path, module) not in APART
    ]
    assert offences == []


@pytest.mark.parametrize("service", ["placement", "scheduler", "compute"])
def test_no_database_between_scheduler_and_computes(service: str) -> None:
    """Neither the scheduler nor an agent on a host reads or writes a database, not even its library."""
    offences = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted((ROOT / "src" / "skep" / service).rglob("*.py"))
        for module in imported(path)
        if module.startswith(("skep.database", "sqlalchemy", "sqlite3"))
    ]
    assert offences == []


def test_no_service_holds_statements() -> None:
    """A table without SQLAlchemy is enough for one. Who keeps leases or knows the time passes those tables on."""
    apart = [ROOT / "src" / "skep" / name for name in ("database", "contracts")]
    offences = [
        f"{path.relative_to(ROOT)} imports {name} of {module}"
        for path in sorted((ROOT / "src" / "skep").rglob("*.py"))
        if not any(path.is_relative_to(folder) for folder in apart)
        for module, name in names_imported(path)
        if module.startswith("skep.database.")
        and (name.endswith("tables") or (module.endswith("tables") and name not in {"leases", "time"}))
    ]
    assert offences == []


def test_ports_are_served_through_the_listener_alone() -> None:
    """What else served HTTP would stand there without limits."""
    servers = {"uvicorn", "hypercorn", "socketserver"}
    sources = [path for path in (ROOT / "src" / "skep").rglob("*.py") if any(map(path.read_text().count, servers))]
    serving = {
        str(path.relative_to(ROOT / "src" / "skep"))
        for path in sources
        if any(module.split(".")[0] in servers for module in imported(path))
    }
    assert serving == {
        "processes/listener.py",
        "processes/websocket_connection.py",
        "processes/http_connection.py",
        "contracts/neighbours/served.py",
    }
