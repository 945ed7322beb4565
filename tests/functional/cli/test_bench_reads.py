"""`skep bench reads`: every kind of read is asked of every project, and all are answered."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from skep.cli.benchmarks.reads import MIX
from skep.cli.main import skep


@pytest.mark.parametrize("ports", [0, 2])
def test_all_reads_of_a_filled_cloud_are_answered(ports: int) -> None:
    size = ["--servers", "100", "--projects", "3", "--hosts", "2", "--cells", "1", "--ports", str(ports)]
    size += ["--one-core"] if ports else []
    result = CliRunner().invoke(skep, ["bench", "reads", *size, "--rate", "40", "--seconds", "4", "--json"])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(result.stdout)
    assert (found["requests"], found["failed"], found["ports"]) == (160, 0, ports)
    assert found["servers"] >= 100
    assert set(found["p99_ms_of"]) <= set(MIX)
    assert len(found["p99_ms_of"]) >= 6
    assert found["client_cpu_ms_per_request"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["slowest_ms"]


def test_the_shares_of_the_mix_are_of_a_hundred() -> None:
    assert sum(MIX.values()) == 100
