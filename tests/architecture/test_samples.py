"""Of walks and matrices `make test` runs a sample, which its seed draws again; with `EVERYWHERE=1` all of it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE
from skep.domain.builds import STEPS
from tests.support import samples

ROOT = Path(__file__).parents[2]
WALKS = (
    "tests/functional/test_deletes.py",
    "tests/crash/test_walk_building.py",
    "tests/unit/database/test_fences.py",
    "tests/functional/test_restarts.py",
)
RUNS = {
    "drawn": {samples.SEED: "7"},
    "everything": {samples.EVERYWHERE: "1"},
    "quick": {samples.SEED: "7", samples.QUICK: "1"},
    "checked": {samples.SEED: "7", samples.CHECKED: "1"},
}
"""Variables of the environment of four runs."""
ONE_AFTER_ANOTHER = f"""
import os, pytest
for name, variables in {RUNS}.items():
    print("RUN", name, flush=True)
    os.environ.update(variables)
    pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *{WALKS}])
    for variable in variables:
        del os.environ[variable]
"""
"""All runs in one process: to import what they collect takes longer than to collect it."""


def collected() -> dict[str, tuple[list[str], str]]:
    """The tests of some files that each of the runs has, and the last lines that it prints."""
    left_out = ("SAMPLE", "EVERY", samples.QUICK, samples.CHECKED)
    environment = {name: value for name, value in os.environ.items() if not any(one in name for one in left_out)}
    command = [sys.executable, "-c", ONE_AFTER_ANOTHER]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=3 * PATIENCE
    )
    found: dict[str, tuple[list[str], str]] = {}
    for run in done.stdout.split("RUN ")[1:]:
        name, *lines = run.splitlines()
        found[name] = [line for line in lines if "::" in line], "\n".join(line for line in lines if "::" not in line)
    return found


def test_a_sample_has_a_case_of_each_step_and_everywhere_all_of_them() -> None:
    runs = collected()
    (drawn, said), (everything, told) = runs["drawn"], runs["everything"]
    assert set(drawn) < set(everything)
    assert "SAMPLE_SEED=7" in said
    assert "every case" in told
    for step in list(STEPS)[: len(STEPS) // 2]:
        assert len([name for name in drawn if f"[{step}-" in name]) == 1
    assert next(name for name in everything if "test_deletes" in name and "[" not in name) in drawn
    assert "test_walk_building" in everything[0], "files that take long come first"
    assert "test_restarts" in everything[-1]
    assert drawn == [name for name in everything if name in drawn]
    quick, checked = runs["quick"][0], runs["checked"][0]
    assert quick == [name for name in drawn if "[postgresql" not in name], "`make check` starts no server"
    assert set(quick) | set(checked) == set(drawn), "what `make check` leaves out runs after it"


def test_in_ci_the_seed_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def drawn() -> str:
        monkeypatch.delenv(samples.SEED, raising=False)
        samples.draw_seed(repeatable=True)
        return os.environ[samples.SEED]

    if not (ROOT / ".git").exists():
        pytest.skip("these sources have no history")
    assert drawn() == drawn()
    monkeypatch.setattr(samples, "SOURCES", tmp_path)
    assert len({drawn() for _ in range(5)}) > 1, "without a history it is any"


def test_a_seed_draws_the_same_again_and_another_one_something_else() -> None:
    cases = list(range(1000))
    drawn = samples.sample(cases, 10, "7", "a walk")
    assert drawn == samples.sample(cases, 10, "7", "a walk") == sorted(drawn)
    assert drawn != samples.sample(cases, 10, "8", "a walk")
    assert drawn != samples.sample(cases, 10, "7", "another walk")
    assert samples.sample(cases[:3], 3, "7") == samples.sample(cases[:3], 9, "7") == cases[:3]


@pytest.mark.parametrize(
    ("environ", "everywhere", "seed"),
    [
        ({}, False, "0"),
        ({"EVERYWHERE": "1", "SAMPLE_SEED": "7"}, True, "7"),
        ({"ACCESS_EVERYWHERE": "1", "ACCESS_SEED": "8", "SAMPLE_SEED": "7"}, True, "8"),
        ({"OTHER_EVERYWHERE": "1", "OTHER_SEED": "8", "SAMPLE_SEED": "7"}, False, "7"),
    ],
)
def test_one_walk_alone_has_variables_of_its_own(environ: dict[str, str], everywhere: bool, seed: str) -> None:
    assert samples.everywhere("ACCESS", environ) == everywhere
    assert samples.seed("ACCESS", environ) == seed


@pytest.mark.parametrize(("environ", "drawn"), [({}, [1, 4, 30]), ({"QUICK": "1"}, [1, 1, 8])])
def test_a_quick_search_draws_a_quarter_of_its_examples(environ: dict[str, str], drawn: list[int]) -> None:
    assert [samples.examples(number, environ) for number in (1, 4, 30)] == drawn


@pytest.mark.parametrize("folder", ["contract", "property", "unit"])
def test_a_search_of_the_quick_tests_can_be_a_quick_one(folder: str) -> None:
    files = [path for path in (ROOT / "tests" / folder).rglob("*.py") if "max_examples=" in path.read_text()]
    assert files
    for path in files:
        assert not re.search(r"max_examples=(?!examples\()", path.read_text()), path
