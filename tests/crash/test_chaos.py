"""A short run of `make chaos`."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from skep_lab.chaos.load import LoadReport
from skep_lab.chaos.services import BesideReport

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


def test_a_short_run_does_no_harm() -> None:
    command = [sys.executable, "-m", "skep_lab.chaos", "--seed", "20", "--builds", "20", "--duration", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 20" in done.stderr
    shown = json.loads(done.stdout)
    assert set(shown) == set(LoadReport.__struct_fields__)
    report = msgspec.convert(shown, LoadReport)
    assert report.clean
    assert report.builds == 20
    assert report.kills > 0
    assert report.acted == sum(report.actions.values()) - report.actions.get("forceDelete", 0) > 0
    assert set(report.faults) <= {"halted", "locked", "living host evacuated", "lost host evacuated"}
    assert report.faults_at_once > 0


def test_a_short_run_beside_services_does_no_harm() -> None:
    """Servers have ports and volumes, and what gives these fails as well."""
    command = [sys.executable, "-m", "skep_lab.chaos", "--deployment", "services", "--seed", "20"]
    command += ["--builds", "10", "--duration", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.convert(json.loads(done.stdout), BesideReport)
    assert report.clean
    assert report.builds == 10
    assert report.things["ports"] >= 10
    assert any(fault.startswith(("neutron", "cinder")) for fault in report.faults)


@pytest.mark.parametrize(
    "wrong", ["errors_unjustified", "stuck", "leaked", "double_built", "lost", "audit_differences"]
)
def test_each_of_the_last_six_fails_a_run(wrong: str) -> None:
    well = LoadReport(
        seed=1,
        builds=9,
        kills=3,
        active=5,
        errors=4,
        errors_unjustified=0,
        stuck=0,
        leaked=0,
        double_built=0,
        lost=0,
        audit_differences=0,
    )
    assert well.clean
    assert not msgspec.structs.replace(well, **{wrong: 1}).clean
