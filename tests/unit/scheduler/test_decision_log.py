"""The decision log: what a segment must hold, and files that are bounded, torn, or cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.hosts import Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.placement.hosts.beats import Beats
from skep.placement.hosts.hearing import Hearing
from skep.placement.knowledge import Knowledge
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log import files
from skep.scheduler.decision_log.entries import Applied, Header, Kept, Known, Observed, UnreadableLine, decode
from skep.scheduler.decision_log.files import DecisionLog
from skep.scheduler.decision_log.reading import entries, segments
from skep.scheduler.decision_log.recording import RecordedDeciding, RecordedStates
from skep.scheduler.records import CELLS, COMPUTE, OPERATOR, BeatValue, CellValue, ComputeValue, beat_key
from skep.scheduler.states import HostStates
from skep.simulator.replay import Tally, replay
from skep.synchronizer.base import Key

CELL = CellUuid("cell-1")
MANY = 3_000


class Scheduler:
    """What a scheduler knows and decides, written down in a directory."""

    def __init__(self, directory: Path, most_bytes: int = files.MEBIBYTE, **facts: Any) -> None:
        settings = SchedulerSettings()
        self.log = DecisionLog(directory, settings, Clock(), most_bytes=most_bytes, release="1.2.3", **facts)
        self.states = RecordedStates(settings, self.log)
        self.now = 0.0
        self.generation = 0

    def take(self, namespace: str, name: str, value: Any) -> None:
        self.generation += 1
        self.states.take(Key(namespace, name), self.generation, value, self.now)

    def learn(self, usage: Callable[..., Any], hosts: int = 4) -> None:
        nodes = tuple(NodeUuid(f"n{number}") for number in range(hosts))
        self.take(CELLS, CELL, CellValue(intent=Cell(uuid=CELL, name="one"), asserted=True))
        for node in nodes:
            self.take(OPERATOR, node, HostIntent(node=node, host=f"host-{node}", cell=CELL))
            report = Report(incarnation=1, seq=1, usage=usage(f"host-{node}"))
            self.take(COMPUTE, node, ComputeValue(cell=CELL, report=report))
        key = beat_key(CELL, "conductor")
        self.take(key.namespace, key.name, BeatValue(at=1, heard=nodes))

    def decide(self, spec: Any, *instances: str) -> RecordedDeciding:
        members = tuple(Member(InstanceUuid(instance), 1) for instance in instances)
        message = SelectDestinations(spec=spec, members=members)
        deciding = RecordedDeciding(self.states, SchedulerSettings(), message, seed=7)
        deciding.decide_all()
        return deciding


def replayed(path: Path) -> Tally:
    tally = Tally()
    for segment in segments(path):
        replay(entries(segment), tally)
    return tally


def test_whoever_remembers_more_says_whether_it_belongs_into_a_snapshot() -> None:
    """A snapshot holds the values of records and `Unrecorded`. What follows from them, and what no decision reads,
    need not be in it; a new attribute belongs to one of them."""
    derived = {
        "table",
        "claims",
        "groups",
        "placement",
        "lost_groups",
        "lost_nodes",
        "names",
        "_aggregate_pages",
        "_waiting_at",
    }
    kept = {"epoch", "awaits_states", "_beats", "_awaits_until", "_told_since", "_now", "_held", "hearing"}
    no_matter = {"members", "quarantined", "_removed", "_sharing", "_intake"}
    states = HostStates(SchedulerSettings())
    assert set(vars(states)) == derived | kept | no_matter
    assert set(vars(Knowledge(SchedulerSettings()))) <= set(vars(states))
    assert set(vars(Beats(1.0))) == {"_beats", "_living", "_lapse"}
    assert set(vars(Hearing())) == {"_conductors"}


def test_a_log_holds_its_settings_a_snapshot_and_what_came_after(tmp_path: Path, usage: Any, spec: Any) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.log.open("run-1")
    scheduler.states.observe(1.0)
    scheduler.decide(spec(), "a", "b").drop_all()
    scheduler.log.close()
    (path,) = segments(tmp_path)
    header, *rest = entries(path)
    assert isinstance(header, Header)
    assert (header.release, header.run, header.segment, header.settings) == ("1.2.3", "run-1", 1, SchedulerSettings())
    kinds = [type(entry).__name__ for entry in rest]
    assert kinds == [*["Kept"] * 10, "Known", "Observed", "LoggedRequest", "Decided", "Decided", "EndedRequest"]
    assert path.stat().st_mode & 0o777 == 0o600
    tally = replayed(tmp_path)
    assert (tally.decisions, tally.reproduced, tally.changes) == (2, 2, 12)


def test_what_is_decided_and_not_stored_goes_over_into_the_next_segment(tmp_path: Path, usage: Any, spec: Any) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage, hosts=2)
    scheduler.log.open("run-1")
    scheduler.states.observe(1.0)
    first = scheduler.decide(spec(), "a")
    scheduler.log._wants_snapshot = True
    scheduler.states.observe(2.0)
    second = scheduler.decide(spec(), "b")
    first.decide_again(first.seats[0])
    first.drop_all()
    scheduler.decide(spec(), "c")
    second.drop_all()
    scheduler.log.close()
    tally = replayed(tmp_path)
    assert (tally.segments, tally.decisions, tally.reproduced) == (2, 4, 4)


def test_a_decision_that_comes_out_otherwise_is_shown_with_both_answers(tmp_path: Path, usage: Any, spec: Any) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.log.open("run-1")
    scheduler.states.observe(1.0)
    chosen = scheduler.decide(spec(), "a").seats[0].claim
    assert chosen is not None
    scheduler.log.close()
    # Of the host that was chosen the log tells nothing any more.
    (path,) = segments(tmp_path)
    left = [entry for entry in entries(path) if not (isinstance(entry, Kept) and entry.name == chosen.node)]
    tally = Tally()
    replay(left, tally)
    assert (tally.decisions, tally.reproduced) == (1, 0)
    (difference,) = tally.differences
    assert difference.recorded.startswith(f"{chosen.node}, then ")
    assert not difference.replayed.startswith(chosen.node)
    assert difference.instance == "a"


def test_all_files_of_a_directory_stay_within_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WRITE_SECONDS", 3600)
    for run in ("run-1", "run-2", "run-3"):
        scheduler = Scheduler(tmp_path, most_bytes=512 * 1024)
        scheduler.log.open(run)
        for number in range(60):
            scheduler.states.checkpoint()
            for at in range(MANY):
                scheduler.log.note(Observed(number * MANY + at * 1.0001))
            scheduler.log._wants_snapshot |= scheduler.log._write_waiting()
        scheduler.log.close()
    written = segments(tmp_path)
    assert sum(path.stat().st_size for path in written) <= 512 * 1024
    assert len(written) > 3
    assert replayed(written[-1]).changes > MANY


def test_a_torn_end_is_left_out(tmp_path: Path, usage: Any, spec: Any) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.log.open("run-1")
    scheduler.states.observe(1.0)
    scheduler.decide(spec(), *(f"i{number}" for number in range(50)))
    scheduler.log.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    counted = set()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        try:
            tally = replayed(path)
        except UnreadableLine as error:
            assert "no complete line" in str(error)  # noqa: PT017  # nothing of it had reached the disk
        else:
            assert tally.reproduced == tally.decisions
            counted.add(tally.decisions)
    assert max(counted) > 20


def test_where_the_disk_fails_the_scheduler_goes_on_and_the_log_begins_anew(
    tmp_path: Path, usage: Any, spec: Any
) -> None:
    now = [0.0]
    directory = tmp_path / "log"
    directory.write_text("a file stands in the way")
    scheduler = Scheduler(directory, monotonic=lambda: now[0])
    scheduler.learn(usage)
    log = scheduler.log
    log.open("run-1")
    scheduler.states.observe(1.0)
    log.close()
    assert not log.wants_snapshot
    assert scheduler.decide(spec(), "a").seats[0].choice is not None
    directory.unlink()
    now[0] += files.RETRY_SECONDS
    log._stop.clear()
    log.open("run-1")
    scheduler.states.observe(2.0)
    scheduler.decide(spec(), "b")
    log.close()
    tally = replayed(directory)
    assert (tally.decisions, tally.reproduced) == (1, 1)


def test_a_full_disk_is_let_go_of_without_another_error(tmp_path: Path) -> None:
    writer = files._Writer(tmp_path, files.MEBIBYTE)
    writer.begin("one.jsonl.gz")
    assert writer._file is not None
    writer._file.close()
    writer._file = Path("/dev/full").open("wb")  # noqa: SIM115  # the writer closes it
    with pytest.raises(OSError, match="No space"):
        writer.end()
    writer.abandon()
    assert not writer.is_full
    writer.begin("two.jsonl.gz")
    writer.end()


def test_a_disk_that_does_not_keep_up_costs_entries_not_memory(
    tmp_path: Path, usage: Any, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_WAITING", 5)
    monkeypatch.setattr(files, "UNMEASURED", 3)
    monkeypatch.setattr(files, "WRITE_SECONDS", 3600)
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.log.open("run-1")
    for number in range(40):
        scheduler.states.observe(float(number))
        scheduler.decide(spec(), f"i{number}").drop_all()
    assert len(scheduler.log._waiting) <= 6
    scheduler.log.close()
    tally = replayed(tmp_path)
    assert tally.segments >= 1
    assert tally.reproduced == tally.decisions


def test_long_entries_are_bounded_by_their_bytes(
    tmp_path: Path, usage: Any, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_WAITING_BYTES", 50_000)
    monkeypatch.setattr(files, "UNMEASURED", 3)
    monkeypatch.setattr(files, "WRITE_SECONDS", 3600)
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.log.open("run-1")
    most = 0
    for number in range(40):
        scheduler.states.observe(float(number))
        scheduler.decide(spec(scheduler_hints={"note": "x" * 4_000}), f"i{number}").drop_all()
        most = max(most, scheduler.log.waiting_bytes)
    assert 40_000 < most <= 50_000
    assert 10 < len(scheduler.log._waiting) < 80
    scheduler.log.close()
    assert scheduler.log.waiting_bytes == 0
    tally = replayed(tmp_path)
    assert (tally.segments, tally.incomplete) == (1, 0)
    assert tally.reproduced == tally.decisions >= 10


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b'["decided",1]', b'{"type":"log"}', b'["unheard",1]', b'["applied","compute","n",null,{"cell":1}]'],
)
def test_a_line_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(UnreadableLine):
        decode(line)


def test_a_file_that_is_no_log_is_refused_by_name(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl.gz"
    other.write_bytes(b"no log at all")
    with pytest.raises(UnreadableLine, match=r"other\.jsonl\.gz"):
        list(entries(other))
    with pytest.raises(FileNotFoundError, match="no decision log"):
        segments(tmp_path / "nothing")


def test_a_record_of_a_namespace_of_later_releases_says_nothing() -> None:
    entry = decode(b'["applied","later","x",1.5,{"anything":1}]')
    assert entry == Applied("later", "x", 1.5, None)


def test_the_end_of_a_snapshot_reads_as_it_was_written(tmp_path: Path, usage: Any) -> None:
    scheduler = Scheduler(tmp_path)
    scheduler.learn(usage)
    scheduler.states.observe(3.0)
    scheduler.states.share_hosts("me", ("other",))
    known = Known(unrecorded=scheduler.states.unrecorded(), heard=scheduler.states.hearing.states())
    scheduler.log.open("run-1")
    scheduler.states.observe(4.0)
    scheduler.log.close()
    (path,) = segments(tmp_path)
    assert next(entry for entry in entries(path) if isinstance(entry, Known)) == known
