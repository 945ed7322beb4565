"""`skep bench scheduler`: each kind of load runs, places what fits and says so in one JSON object."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from skep.cli.benchmarks.scheduler import reference
from skep.cli.benchmarks.scheduler.names import DECIDED, LOAD
from skep.cli.benchmarks.scheduler.workloads import WORKLOADS
from skep.cli.main import skep
from skep.contracts.eventually import PATIENCE

OF_OTHERS = {"aiohttp", "alembic", "httpx", "psycopg", "sqlalchemy"}
"""What other benchmarks import, and placement does not need."""
RUN = f"""
import sys
from skep.cli.main import skep
skep(["bench", "scheduler", "--hosts", "60", "--seconds", "0.1", "--reference-seconds", "0"], standalone_mode=False)
sys.exit(" ".join({OF_OTHERS!r} & set(sys.modules)) or None)
"""


def figures(*words: str) -> dict[str, Any]:
    asked = ["bench", "scheduler", "--hosts", "60", "--shapes", "8", "--seconds", "0.1", "--json", *words]
    result = CliRunner().invoke(skep, asked)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = msgspec.json.decode(result.stdout)
    return found


@pytest.mark.parametrize("workload", DECIDED)
def test_every_load_is_decided(workload: str) -> None:
    found = figures("--workload", workload, "--reference-seconds", "0")
    assert found["workload"] == workload
    assert found["placed"] > 0
    assert found["decisions_per_s"] > 0
    assert 0 < found["p50_us"] <= found["p99_us"] <= found["max_us"]
    if workload == "unschedulable":
        assert found["refused"] > 0


def test_a_snapshot_is_loaded() -> None:
    found = figures("--workload", LOAD)
    assert found["load_s"] > 0
    assert found["placed"] == 0


def test_the_reference_decides_about_the_same_hosts() -> None:
    found = figures("--workload", "mixed", "--reference-seconds", "0.1")
    assert found["ratio_to_reference"] >= 0


def test_without_the_laboratory_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "GROUP", "skep.no-such-group")
    found = figures("--workload", "mixed", "--reference-seconds", "0.1")
    assert found["placed"] > 0
    assert found["ratio_to_reference"] is None


def test_every_load_has_its_name() -> None:
    assert tuple(WORKLOADS) == DECIDED


def test_nothing_is_imported_that_other_benchmarks_need() -> None:
    """It would be measured with it: memory, and what the collector looks at."""
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
