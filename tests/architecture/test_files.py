"""Rules about files that a reader feels: their length, their names, and what tests may not do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 600
"""A warning, not an aim: one class in one file is better than pieces of it that import each other."""
LONGER_FOR_A_REASON: dict[str, str] = {
    "src/skep/contracts/drivers.py": "the suite of one port, which authors of drivers inherit as one class",
    "src/skep/domain/actions.py": "the one table of actions",
}
"""Path -> why this file is one noun although it is long."""

MISLEADING = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
"""Names that do not tell what is in a module."""

FORBIDDEN_IN_TESTS = {
    "unittest" + ".mock": "fakes are real implementations: skep.contracts, lab/, tests/support",
    "mock" + ".patch": "fakes are real implementations: skep.contracts, lab/, tests/support",
    "time" + ".sleep(": "a test waits for an event, never for time",
}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


OURS = sources("src", "lab/src", "tests/support")
"""What others import: the product, the laboratory, and what tests share."""


def test_no_source_file_is_two_nouns() -> None:
    long = {
        str(path.relative_to(ROOT)): lines for path in OURS if (lines := len(path.read_text().splitlines())) > LONGEST
    }
    assert {path: lines for path, lines in long.items() if path not in LONGER_FOR_A_REASON} == {}
    assert set(LONGER_FOR_A_REASON) <= set(long), "an exception that is no longer needed"


def test_no_package_lies_among_the_sources() -> None:
    """Packages come from an index, by the lock file."""
    assert [path.name for path in ROOT.iterdir() if path.suffix in {".whl", ".gz", ".zip"}] == []


def test_names_tell_what_is_in_a_module() -> None:
    assert [str(path) for path in OURS if {path.stem, path.parent.name} & MISLEADING] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path) for path in OURS if not path.read_text().lstrip().startswith(('"""', 'r"""', "'''"))]
    assert silent == []


@pytest.mark.parametrize("word", FORBIDDEN_IN_TESTS)
def test_tests_use_real_things_and_real_events(word: str) -> None:
    offences = [str(path.relative_to(ROOT)) for path in sources("tests") if word in path.read_text()]
    assert offences == [], FORBIDDEN_IN_TESTS[word]


def test_no_test_hopes_that_a_while_is_enough() -> None:
    """`asyncio.sleep(0)` lets others run; any other time is a hope."""
    hope = re.compile(r"asyncio\.sleep\((?!0\))")
    assert [str(path.relative_to(ROOT)) for path in sources("tests") if hope.search(path.read_text())] == []


def test_the_lock_names_no_host() -> None:
    """Where packages come from is the environment's business; `make lock` takes addresses out."""
    assert "://" not in (ROOT / "uv.lock").read_text()
