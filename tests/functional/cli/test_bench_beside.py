"""`skep_lab.benchmarks.builds_beside`: servers get what was asked for, and each side has its figure."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from skep_lab.benchmarks.builds_beside import main


@pytest.mark.parametrize(("ports", "volumes"), [(2, 1), (0, 0)])
def test_builds_beside_neighbours_are_counted(ports: int, volumes: int) -> None:
    size = ["--servers", "4", "--hosts", "1", "--ports", str(ports), "--volumes", str(volumes)]
    result = CliRunner().invoke(main, size)
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(result.stdout)
    assert [found[key] for key in ("servers", "ports", "volumes", "errors", "stuck")] == [4, ports, volumes, 0, 0]
    assert found["cpu_ms_per_server"] > 0
    assert found["cpu_ms_of_neighbours"] >= 0
    made = found["made_by_neighbours"]
    assert made == {"ports": 4 * ports, "volumes": 4 * volumes}
