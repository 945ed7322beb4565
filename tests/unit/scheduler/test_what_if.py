"""What another policy would have decided on what a scheduler knew, and how the command shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli.simulate import simulate
from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.hosts import Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.placement.options import PlacementOptions
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.files import MEBIBYTE, DecisionLog
from skep.scheduler.decision_log.reading import entries, segments
from skep.scheduler.decision_log.recording import RecordedDeciding, RecordedStates
from skep.scheduler.records import CELLS, COMPUTE, OPERATOR, BeatValue, CellValue, ComputeValue, beat_key
from skep.simulator.policies import SimulatedPolicy, named
from skep.simulator.replay import replay
from skep.simulator.what_if import Comparison, recorded_settings
from skep.synchronizer.base import Key

CELL = CellUuid("cell-1")
SERVERS = 6


@pytest.fixture(name="log")
def log_fixture(tmp_path: Path, usage: Any, spec: Any) -> Path:
    """A log of a scheduler that spread servers over two hosts of different sizes, and refused nobody."""
    return written(tmp_path / "log", SchedulerSettings(), usage, spec)


def written(path: Path, settings: SchedulerSettings, usage: Any, spec: Any) -> Path:
    """Write what a scheduler recorded under these settings."""
    log = DecisionLog(path, settings, Clock(), most_bytes=MEBIBYTE, release="1", monotonic=lambda: 0.0)
    states = RecordedStates(settings, log)

    def take(namespace: str, name: str, value: Any) -> None:
        states.take(Key(namespace, name), 1, value, 0.0)

    take(CELLS, CELL, CellValue(intent=Cell(uuid=CELL, name="one"), asserted=True))
    for number, vcpus in enumerate((8, 64)):
        node = NodeUuid(f"n{number}")
        facts = usage(f"host-{number}", vcpus=vcpus, memory_mb=vcpus * 1024)
        take(OPERATOR, node, HostIntent(node=node, host=f"host-{number}", cell=CELL))
        report = Report(incarnation=1, seq=1, usage=facts)
        take(COMPUTE, node, ComputeValue(cell=CELL, report=report))
    beat = beat_key(CELL, "conductor")
    take(beat.namespace, beat.name, BeatValue(at=1, heard=(NodeUuid("n0"), NodeUuid("n1"))))
    log.open("run-1")
    states.observe(1.0)
    for number in range(SERVERS):
        message = SelectDestinations(spec=spec(), members=(Member(InstanceUuid(f"s{number}"), 1),))
        deciding = RecordedDeciding(states, settings, message, seed=7)
        deciding.decide_all()
    log.close()
    return path


def compared(log: Path, policy: SimulatedPolicy) -> Comparison:
    comparison = Comparison(policy=policy)
    for path in segments(log):
        replay(entries(path), comparison)
    return comparison


def run(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, [str(argument) for argument in arguments])


def test_the_recorded_policy_decides_the_same(log: Path) -> None:
    same = compared(log, named("default", recorded_settings(log)))
    assert (same.decisions, same.same_host, same.differing, same.differences) == (SERVERS, SERVERS, 0, [])


def test_each_decision_stands_for_itself(log: Path) -> None:
    other = compared(log, named("best-fit", recorded_settings(log)))
    # What was recorded counts after each: had the policy's own choices counted, one host would have got all.
    assert (other.decisions, other.same_host, other.other_host, other.refused_by_policy) == (SERVERS, 2, 4, 0)
    assert all(one.recorded[:2] != one.replayed[:2] for one in other.differences)


def test_a_policy_may_refuse_what_was_placed(log: Path) -> None:
    options = PlacementOptions(max_instances_per_host=2)
    strict = SchedulerSettings(filters=("NumInstancesFilter",), options=options)
    found = compared(log, SimulatedPolicy(name="strict", settings=strict))
    assert (found.refused_only_by_policy, found.refused_by_policy, found.refused_as_recorded) == (2, 2, 0)
    assert found.decisions == found.same_host + found.other_host + found.refused_by_policy


def test_the_command_shows_both_beside_each_other(log: Path) -> None:
    shown = run("--replay", log, "--policy", "best-fit", "--samples", 5, "--empty")
    assert shown.exit_code == 0, shown.output
    lines = {line.split("  ")[0].strip(): line.split() for line in shown.stdout.splitlines() if line.strip()}
    assert lines["decided otherwise"][-2:] == ["-", "4"]
    assert lines["least empty hosts"][-2:] == ["0", "1"]
    assert lines["VCPU: mean in use"][-4:-2] == lines["VCPU: mean in use"][-2:]
    found = json.loads(run("--replay", log, "--policy", "best-fit", "--against", "default", "--json").stdout)
    assert [one["policy"] for one in found["decided"]] == ["best-fit", "default"]
    assert [one["differing"] for one in found["decided"]] == [4, 0]
    assert [one["policy"] for one in found["policies"]] == ["recorded", "best-fit", "default"]


@pytest.mark.parametrize("told", [(), ("--hosts", 2, "--disk", 100)])
def test_a_log_that_is_a_trace_is_placed_by_its_own_filters(
    tmp_path: Path, usage: Any, spec: Any, told: tuple[object, ...]
) -> None:
    options = PlacementOptions(max_instances_per_host=2)
    strict = SchedulerSettings(filters=("NumInstancesFilter",), options=options)
    policy = tmp_path / "mine.toml"
    policy.write_text("[weighers]\nRAMWeigher = -1.0\n")
    looser = tmp_path / "looser.toml"
    looser.write_text('filters = ["ComputeFilter"]\n')
    log = written(tmp_path / "log", strict, usage, spec)
    for kept in ("default", "best-fit", policy):
        shown = run(log, "--policy", kept, "--against", looser, "--json", *told)
        assert shown.exit_code == 0, shown.output
        assert [one["refused"] for one in json.loads(shown.stdout)["policies"]] == [2, 0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hosts", 3), "--replay does not support --hosts"),
        (("--samples", 3), "--replay without another --policy does not support --samples"),
        (("--policy", "best-fit", "--live"), "--replay does not support --live"),
        (("--policy", "nonsense"), "there is no policy nonsense"),
    ],
)
def test_what_means_nothing_to_a_replay_is_refused(log: Path, arguments: tuple[object, ...], said: str) -> None:
    result = CliRunner().invoke(simulate, [str(argument) for argument in ("--replay", log, *arguments)])
    assert result.exit_code != 0
    assert said in result.stderr + str(result.exception)
