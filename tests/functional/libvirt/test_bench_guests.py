"""`skep bench build --driver libvirt`: what is measured are builds of real guests."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from skep.cli.benchmarks.guests import run
from skep.cli.main import skep
from tests.support.libvirt_hosts import PARTS

pytestmark = [*PARTS, pytest.mark.needs_part("nats-server"), pytest.mark.timeout(600)]


def test_a_few_guests_are_built_and_measured() -> None:
    found = run(guests=1, together=2, defined=1, idle_seconds=1.0, progress=lambda _what: None)
    assert found.guests == 1
    assert found.before_start_ms > 0
    assert found.start_ms > 0
    assert found.after_start_ms > 0
    assert found.own_ms == pytest.approx(found.before_start_ms + found.after_start_ms, abs=0.2)
    assert found.first_own_ms > 0
    assert {"api", "compute", "cell-conductor"} <= set(found.cpu_ms_of)
    assert {"api", "compute", "programs"} <= set(found.build_cpu_ms_of) & set(found.delete_cpu_ms_of)
    assert found.build_cpu_ms == pytest.approx(sum(found.build_cpu_ms_of.values()), abs=0.2)
    assert found.qemu_cpu_ms > 0
    assert found.start_cpu_ms > 0
    assert found.idle_cpu_ms == pytest.approx(sum(found.idle_cpu_ms_of.values()), abs=0.2)
    assert found.together_s > 0
    assert found.agent_mib > 10


def test_what_does_not_count_is_refused() -> None:
    refused = CliRunner().invoke(skep, ["bench", "build", "--driver", "libvirt", "--json", "--rate", "10"])
    assert refused.exit_code == 2
    assert "--rate: with --driver libvirt only --servers counts" in refused.stderr
