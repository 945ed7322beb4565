"""What moved out of `skep.testing` and `benchmarks/` is found at its former place for one release, with a warning."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE
from skep.testing import run_in_laboratory

ROOT = Path(__file__).parents[2]
FORMER = ROOT / "src" / "skep" / "testing"
COMMANDS = ("chaos", "soak")
MODULES = sorted({path.stem for path in FORMER.glob("*.py")} - {"__init__", *COMMANDS})
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"), key=str)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )


@pytest.mark.parametrize("name", MODULES)
def test_a_former_path_warns_and_gives_what_the_present_one_has(name: str) -> None:
    sys.modules.pop(f"skep.testing.{name}", None)
    with pytest.warns(DeprecationWarning, match=f"skep.testing.{name} is skep.contracts.{name} since"):
        former = importlib.import_module(f"skep.testing.{name}")
    present = importlib.import_module(f"skep.contracts.{name}")
    public = getattr(present, "__all__", [word for word in vars(present) if not word.startswith("_")])
    assert public
    assert [word for word in public if getattr(former, word) is not getattr(present, word)] == []


def test_documented_paths_are_among_them() -> None:
    """Pages of 0.6 name these two."""
    assert {"drivers", "synchronizer"} <= set(MODULES)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_former_command_runs_and_names_the_present_one(command: str) -> None:
    done = run("-m", f"skep.testing.{command}", "--help")
    assert f"python -m skep_lab.{command} since" in done.stderr
    assert "--seed" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_former_benchmark_names_one_that_is_there(script: Path) -> None:
    (present,) = re.findall(r'"(skep_lab[\w.]+)"', script.read_text())
    assert find_spec(present) is not None


def test_a_former_benchmark_runs() -> None:
    done = run("benchmarks/packing_decisions.py", "--hosts", "3", "--decisions", "5")
    assert '"chosen"' in done.stdout
    assert "python -m skep_lab.benchmarks.packing_decisions since" in done.stderr


def test_without_the_laboratory_a_former_command_says_what_to_install() -> None:
    with pytest.raises(SystemExit, match="scripts/bootstrap lab"):
        run_in_laboratory("skep.testing.chaos", "no_such_laboratory.chaos")
