"""In which order keys are replaced, and when a step is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skep.domain.clock import SECOND
from skep.domain.errors import Misconfigured
from skep.processes.directory import InUse, StateDirectory
from skep.processes.rotation import Rotation, RotationRecord, StepTaken, next_step, refusal

NOW = 1_800_000_000 * SECOND
ADDED = RotationRecord(key="new", added_at=NOW)
USED = RotationRecord(key="new", added_at=NOW, used_at=NOW)


def test_steps_follow_one_another() -> None:
    assert [next_step(record) for record in (None, ADDED, USED)] == ["add", "use", "drop"]


@pytest.mark.parametrize(
    ("record", "now", "needed", "said"),
    [
        (None, NOW, {}, None),
        (ADDED, NOW, {"kept answers": 3}, None),
        (USED, NOW + 59 * SECOND, {}, "what the old keys encrypted is good for another 1 s"),
        (USED, NOW + 60 * SECOND, {}, None),
        (USED, NOW + 60 * SECOND, {"kept answers": 3, "secrets": 0}, "old keys are still needed by 3 kept answers"),
    ],
)
def test_only_what_the_old_keys_opened_delays_the_last_step(
    record: RotationRecord | None, now: int, needed: dict[str, int], said: str | None
) -> None:
    refused = refusal(record, now, 60, needed)
    assert (refused.reason if refused else None) == said


def test_the_record_of_one_secret_leaves_the_other_alone(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.seal()
    rotation = Rotation(directory)
    first = rotation.keys("sealing")
    assert [rotation.advance("sealing", NOW).step for _ in range(2)] == ["add", "use"]
    assert (rotation.record("tokens"), rotation.keys("tokens")) == (None, ())
    taken = rotation.advance("sealing", NOW)
    assert (taken.step, taken.dropped, rotation.keys("sealing")) == ("drop", first, (taken.key,))
    assert rotation.record("sealing") is None
    assert (directory.keys / "rotation.json").stat().st_mode & 0o077 == 0


def test_a_key_file_that_was_not_copied_is_not_thinned(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.seal()
    before = directory.secrets_key.read_bytes()
    rotation = Rotation(directory)
    for _ in range(2):
        rotation.advance("sealing", NOW)
    directory.secrets_key.write_bytes(before)
    with pytest.raises(Misconfigured, match="does not encrypt by the new key"):
        rotation.advance("sealing", NOW)
    assert directory.secrets_key.read_bytes() == before


def test_of_commands_that_begin_a_rotation_at_once_one_does_and_no_key_is_lost(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.seal()
    first = Rotation(directory).keys("sealing")
    start = threading.Barrier(8)

    def begin() -> StepTaken | InUse:
        start.wait()
        try:
            return Rotation(directory).advance("sealing", NOW, "add")
        except InUse as error:
            return error

    with ThreadPoolExecutor(8) as threads:
        answers = [one.result() for one in [threads.submit(begin) for _ in range(8)]]
    taken = [one for one in answers if isinstance(one, StepTaken)]
    assert [one.step for one in taken] == ["add"]
    assert Rotation(directory).keys("sealing") == (*first, taken[0].key)
    record = Rotation(directory).record("sealing")
    assert record is not None
    assert (record.key, record.used_at) == (taken[0].key, None)
