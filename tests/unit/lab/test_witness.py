"""The witnesses know what is right for a server that moves, and find what is not."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from skep.compute.drivers.guest_log import GuestEvent
from skep.domain.ids import InstanceUuid
from skep_lab.chaos.contents import WrittenDisks
from skep_lab.witnesses.witness import HostSeen, Promised, Seen, judge
from skep_lab.witnesses.witness_guests import Life, double_built, drives, lives_on
from skep_lab.witnesses.witness_rows import Mapped, Row, Rows

ONE = InstanceUuid("one")
TINY = {"VCPU": 1}
ROW = Row(uuid=ONE, name="one", cell="cell1", state="resized", task=None, host="target", attempt=2, fault="")
SOURCE = Life(host="source", instance=ONE, attempt=1, began=1, ended=5, finished=1, resources=TINY)
DISKS = (("source", ONE, 1), ("target", ONE, 2))
TARGET = Life(host="target", instance=ONE, attempt=2, began=6, finished=1, resources=TINY)
WAITS = Seen(
    rows=Rows(
        mapped={ONE: Mapped(cell="cell1", deleting=False)},
        rows=(ROW,),
        leaked=(),
        kept=frozenset({("source", ONE, 1)}),
    ),
    lives=(SOURCE, TARGET),
    disks=DISKS,
    statuses={ONE: "VERIFY_RESIZE"},
    hosts={"source": HostSeen(used=TINY), "target": HostSeen(used=TINY)},
)
"""A server that was moved, and that its user may send back."""
PROMISED = Promised(created={ONE})


def test_a_server_that_may_go_back_is_well() -> None:
    assert judge(WAITS, PROMISED).clean


def test_what_is_kept_of_a_server_that_is_confirmed_is_a_leftover() -> None:
    confirmed = replace(WAITS, rows=replace(WAITS.rows, rows=(replace(ROW, state="active"),), kept=frozenset()))
    [disk, used] = judge(confirmed, PROMISED).leaked
    assert disk == "disk without its server: one attempt 1 on source"
    assert used.startswith("source counts 1 VCPU used")


def test_room_that_is_not_kept_and_disks_that_are_gone_are_found() -> None:
    [used] = judge(replace(WAITS, hosts={"source": HostSeen(), "target": HostSeen(used=TINY)}), PROMISED).leaked
    assert used.startswith("source counts 0 VCPU used")
    assert len(judge(replace(WAITS, disks=DISKS[1:]), PROMISED).lost) == 1
    assert len(judge(replace(WAITS, disks=DISKS[:1]), PROMISED).lost) == 1


def test_ports_that_are_missing_or_not_told_are_found() -> None:
    def seen(ports: int, told: int) -> Seen:
        rows = replace(WAITS.rows, rows=(replace(ROW, interfaces=told),), ports={ONE: ports} if ports else {})
        return replace(WAITS, rows=rows)

    one = replace(PROMISED, interfaces=1)
    assert judge(seen(0, 0), PROMISED).clean, "nobody looks at ports"
    assert judge(seen(1, 1), one).clean
    assert judge(seen(1, 0), one).lost == ("one is resized with 1 ports, shows 0, and was promised 1",)
    assert len(judge(seen(0, 1), one).lost) == len(judge(seen(2, 2), one).lost) == 1


def test_config_drives_that_are_gone_or_left_are_found() -> None:
    promised = replace(WAITS, rows=replace(WAITS.rows, rows=(replace(ROW, config_drive=True),)))
    assert judge(promised, PROMISED).clean, "nobody looks at drives"
    assert judge(replace(promised, drives=(("target", ONE, 2),)), PROMISED).clean
    assert judge(replace(promised, drives=DISKS), PROMISED).clean, "the source keeps its own"
    [lost] = judge(replace(promised, drives=()), PROMISED).lost
    assert lost == "one is resized on target, where it has no config drive"
    [left] = judge(replace(WAITS, drives=(("target", ONE, 1),)), PROMISED).leaked
    assert left == "config drive without its server: one attempt 1 on target"


def test_drives_are_known_by_their_names_half_made_ones_too(tmp_path: Path) -> None:
    for name in ("one_1", "one_2.new"):
        (tmp_path / "hosts" / "cell1" / "host-1" / "config-drives" / name).mkdir(parents=True)
    assert drives(tmp_path) == [("host-1", ONE, 1), ("host-1", ONE, 2)]


def test_two_guests_at_one_moment_are_found() -> None:
    assert double_built(WAITS.lives) == []
    assert (
        len(double_built((SOURCE, Life(host="target", instance=ONE, attempt=2, began=4, finished=1, resources=TINY))))
        == 1
    )


def test_a_guest_without_power_is_beside_none_until_it_starts_again() -> None:
    lost = [
        GuestEvent(at=1, event="spawn_begun", instance=ONE, attempt=1),
        GuestEvent(at=2, event="spawned", instance=ONE, attempt=1),
        GuestEvent(at=5, event="powered_off", instance=ONE, attempt=1, hard=True),
    ]
    stopped = [*lost[:-1], GuestEvent(at=5, event="powered_off", instance=ONE, attempt=1)]
    back = [*lost, GuestEvent(at=9, event="powered_on", instance=ONE, attempt=1)]
    assert double_built((*lives_on("source", lost), TARGET)) == []
    assert len(double_built((*lives_on("source", stopped), TARGET))) == 1
    assert len(double_built((*lives_on("source", back), TARGET))) == 1


def test_what_a_guest_wrote_is_missed_unless_its_disk_was_to_be_anew(tmp_path: Path) -> None:
    disk = written(tmp_path, "target", 2)
    contents = WrittenDisks(tmp_path)
    contents.write(ONE, "target", contents.asked(ONE))
    assert list(contents.lost(WAITS.rows)) == []
    disk.write_bytes(b"image")
    assert len(list(contents.lost(WAITS.rows))) == 1
    before = contents.asked(ONE)
    contents.anew(ONE)
    assert (list(contents.lost(WAITS.rows)), contents.number) == ([], 0)
    contents.write(ONE, "target", contents.asked(ONE))
    assert contents.number == 0, "the request may still begin"
    contents.anew(ONE, answered=True)
    contents.write(ONE, "target", before)
    assert contents.number == 0, "it was looked at before"
    contents.write(ONE, "target", contents.asked(ONE))
    disk.write_bytes(b"image")
    assert len(list(contents.lost(WAITS.rows))) == 1, "its guest wrote again"
    contents.anew(ONE)
    contents.anew(ONE)
    contents.anew(ONE, answered=True)
    contents.write(ONE, "target", contents.asked(ONE))
    assert (list(contents.lost(WAITS.rows)), contents.number) == ([], 0)


def test_what_an_older_disk_held_or_the_kept_one_does_not_hold_is_missed(tmp_path: Path) -> None:
    disk, contents = written(tmp_path, "target", 2), WrittenDisks(tmp_path)
    contents.write(ONE, "target", contents.asked(ONE))
    older = disk.read_bytes()
    contents.write(ONE, "target", contents.asked(ONE))
    kept = written(tmp_path, "source", 1)
    kept.write_bytes(disk.read_bytes())
    assert list(contents.lost(WAITS.rows)) == []
    kept.write_bytes(older)
    assert len(list(contents.lost(WAITS.rows))) == 1
    disk.write_bytes(older)
    assert len(list(contents.lost(WAITS.rows))) == 2


def test_a_guest_writes_to_no_disk_of_two(tmp_path: Path) -> None:
    disks = [written(tmp_path, "target", attempt) for attempt in (1, 2)]
    contents = WrittenDisks(tmp_path)
    contents.write(ONE, "target", contents.asked(ONE))
    assert [disk.read_bytes() for disk in disks] == [b"image", b"image"]
    assert contents.number == 0


def written(state: Path, host: str, attempt: int) -> Path:
    disk = state / "hosts" / "cell1" / host / "disks" / f"{ONE}_{attempt}"
    disk.parent.mkdir(parents=True, exist_ok=True)
    disk.write_bytes(b"image")
    return disk
