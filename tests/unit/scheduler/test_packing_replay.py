"""A decision log says what was asked for before it begins: decisions by a learned mix are repeated from any segment."""

from __future__ import annotations

from typing import Any

from skep.domain.cells import Cell, HostIntent
from skep.domain.hosts import Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.recording import RecordedDeciding, RecordedStates
from skep.scheduler.records import CELLS, COMPUTE, OPERATOR, BeatValue, CellValue, ComputeValue, beat_key
from skep.simulator.replay import Tally, replay
from skep.synchronizer.base import Key
from tests.support.decision_logs import MemoryLog

CELL = CellUuid("cell-1")


def test_decisions_by_a_learned_mix_are_repeated_from_any_segment(usage: Any, spec: Any, flavor: Any) -> None:
    settings = SchedulerSettings(weighers={"FragmentationWeigher": 1.0})
    log = MemoryLog(settings, every=40)
    log.open("run-1")
    states = RecordedStates(settings, log)
    nodes = tuple(NodeUuid(f"n{number}") for number in range(12))
    beat = beat_key(CELL, "conductor")
    values: list[tuple[Key, Any]] = [(Key(CELLS, CELL), CellValue(intent=Cell(uuid=CELL, name="one"), asserted=True))]
    for node in nodes:
        values.append((Key(OPERATOR, node), HostIntent(node=node, host=f"host-{node}", cell=CELL)))
        report = Report(incarnation=1, seq=1, usage=usage(f"host-{node}", vcpus=16, memory_mb=66_048))
        values.append((Key(COMPUTE, node), ComputeValue(cell=CELL, report=report)))
    values.append((beat, BeatValue(at=1, heard=nodes)))
    for generation, (key, value) in enumerate(values, 1):
        states.take(key, generation, value, 0.0)
    for number in range(120):
        asked = spec(flavor=flavor(vcpus=(1, 2, 1, 8)[number % 4], memory_mb=1024))
        message = SelectDestinations(spec=asked, members=(Member(InstanceUuid(f"i{number}"), 1),))
        RecordedDeciding(states, settings, message, seed=7).decide_all()
    assert states.table.mix.published.version > 2
    segments = log.entries()
    assert len(segments) > 2
    for segment in segments:
        tally = Tally()
        replay(iter(segment), tally)
        assert tally.decisions
        assert tally.reproduced == tally.decisions
