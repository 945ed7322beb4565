"""At its end a run says what the tests of each folder took, however many workers ran them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skep.contracts.eventually import PATIENCE
from tests.support.durations import BY_FILE, Durations

ROOT = Path(__file__).parents[2]


def test_phases_are_added_up_by_folder_and_the_longest_comes_first() -> None:
    durations = Durations()
    for nodeid, seconds in (("tests/a/test_1.py::test_x[a/b]", 1.0), ("tests/b/test_2.py::T::test_y", 4.0)):
        durations.add(nodeid, "setup", 0.5, 0.25)
        durations.add(nodeid, "call", seconds, 0.5)
    assert [line.split() for line in durations.lines()] == [
        ["seconds", "processor", "tests", "folder"],
        ["4.5", "0.8", "1", "tests/b"],
        ["1.5", "0.8", "1", "tests/a"],
        ["6.0", "1.5", "2", "all,", "in", "all", "workers", "together"],
    ]


def test_files_are_told_apart_where_that_is_asked_for() -> None:
    durations = Durations(by_file=True)
    for name in ("test_1", "test_2"):
        durations.add(f"tests/a/{name}.py::test", "setup", 1.0, 1.0)
    assert set(durations.places) == {"tests/a/test_1.py", "tests/a/test_2.py"}


def test_the_end_of_a_run_in_workers_shows_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support import durations\n\ndef pytest_configure(config):\n    durations.register(config)\n"
    )
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"test_{folder}.py").write_text("def test_it():\n    pass\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "1",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            ".",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), BY_FILE: ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    table = done.stdout[done.stdout.index("what tests take") :].splitlines()
    assert {tuple(line.split()[2:]) for line in table if line.endswith(("one", "two", "together"))} == {
        ("1", "one"),
        ("1", "two"),
        ("2", "all,", "in", "all", "workers", "together"),
    }
