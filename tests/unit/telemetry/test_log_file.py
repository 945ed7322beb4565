"""The log file of a process: complete, closed to others, bounded, and never in the way."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from skep.processes.supervisor.child import Child, ChildTask
from skep.telemetry import logs
from skep.telemetry.log_file import LogFile


def test_the_file_has_every_line_where_the_terminal_has_warnings(tmp_path: Path) -> None:
    stream, path = io.StringIO(), tmp_path / "logs" / "up.log"
    logs.configure("info", "text", stream, file=LogFile(path), warnings_only=True)
    log = logs.get_logger("skep.example")
    log.info("request", path="/servers")
    log.warning("host silent", host="h1")
    try:
        raise ValueError("what happened")
    except ValueError:
        log.exception("request failed")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in written] == ["request", "host silent", "request failed"]
    assert "what happened" in written[2]["exception"]
    said = stream.getvalue()
    assert "/servers" not in said
    assert "host silent" in said
    assert "what happened" in said


def test_the_file_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "up.log"
    LogFile(path).write("{}")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_file_grows_to_its_bound_and_keeps_one_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "up.log"
    file = LogFile(path, largest=100)
    for number in range(40):
        file.write(json.dumps({"number": number}))
    kept = [
        json.loads(line)["number"]
        for one in ("up.log.1", "up.log")
        for line in (tmp_path / one).read_text().splitlines()
    ]
    assert kept == list(range(kept[0], 40))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["up.log", "up.log.1"]
    assert all(one.stat().st_size <= 100 for one in tmp_path.iterdir())


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no directory")
    file = LogFile(tmp_path / "logs" / "up.log")
    file.write("{}")
    file.write("{}")
    (tmp_path / "logs").unlink()
    file.write("{}")
    assert file.path.read_text().splitlines() == ['{"event": "log lines lost", "lines": 2}', "{}"]


def test_what_is_written_past_the_lines_follows_to_each_next_file(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "before", os.O_WRONLY | os.O_CREAT)
    try:
        file = LogFile(tmp_path / "role.log", largest=100, descriptors=(descriptor,))
        for number in range(30):
            file.write(json.dumps({"number": number}))
        os.write(descriptor, b"last words\n")
    finally:
        os.close(descriptor)
    assert (tmp_path / "role.log").read_text().endswith("last words\n")
    assert (tmp_path / "before").read_bytes() == b""


def test_with_a_file_alone_the_stream_gets_nothing(tmp_path: Path) -> None:
    stream, path = io.StringIO(), tmp_path / "role.log"
    logs.configure("info", "text", stream, file=LogFile(path), file_only=True)
    logs.get_logger("skep.example").error("host silent", host="h1")
    assert json.loads(path.read_text())["event"] == "host silent"
    assert stream.getvalue() == ""


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """A scheduler whose NATS is not there."""
    settings = {"SKEP_TRANSPORT__KIND": "nats", "SKEP_TRANSPORT__URL": "nats://127.0.0.1:9", "SKEP_LOG__FORMAT": "text"}
    settings |= {"SKEP_SYNCHRONIZER__BACKEND": "nats", "SKEP_SYNCHRONIZER__URL": "nats://127.0.0.1:9"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    order = ChildTask("scheduler-1", "scheduler", ("--health-port", "0"))
    return Child(order, kept | settings | {"SKEP_STATE__DIRECTORY": str(tmp_path)}, tmp_path / "logs", drain_seconds=5)


async def log_of(child: Child) -> None:
    async def written() -> int:
        return child.log.stat().st_size if child.log.exists() else 0

    await eventually(written, "the child logs")


async def test_a_child_of_the_supervisor_logs_into_a_bounded_file(child: Child) -> None:
    """It waits for NATS, and says so in its file, as JSON whatever is configured."""
    child.start()
    try:
        await log_of(child)
    finally:
        await child.stop()
    assert child.starts == 1
    assert all(json.loads(line)["level"] for line in child.log.read_text().splitlines())


async def test_a_child_that_cannot_be_started_for_a_moment_is_started_later(child: Child) -> None:
    """As where there is no memory for it. Here its log cannot be opened: a directory has its name."""
    child.log.mkdir(parents=True)

    async def tried() -> bool:
        return child.starts > 1

    child.start()
    try:
        await eventually(tried, "it was tried twice")
        child.log.rmdir()
        await log_of(child)
        shutil.rmtree(child.log.parent)
    finally:
        await child.stop()
