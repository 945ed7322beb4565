"""A cloud of processes of another release is brought to this code, back, and forth again, while clients build."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep_lab.chaos.upgrade import TURNS, UpgradeChaos

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres"), pytest.mark.timeout(1200)]


@pytest.mark.sampled(1)
async def test_no_request_is_lost_while_processes_are_replaced_by_those_of_another_release(
    other_release: Path, tmp_path: Path
) -> None:
    run = UpgradeChaos(tmp_path / "cloud", seed=3, builds=20, duration=20.0, hosts=2, release=other_release)
    report, findings, audit = await run.run()
    assert report.clean, "\n".join([repr(report), findings.text(), *audit])
    assert report.restarts == len(TURNS) * len(run.processes.children)
    assert report.active > 0
