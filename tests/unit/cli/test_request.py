"""One request across the logs of all processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.main import skep
from skep.domain.ids import new_request_id

REQUEST, OTHER = new_request_id(), new_request_id()


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path))
    directory = tmp_path / "logs"
    directory.mkdir()
    files: dict[str, list[tuple[str, dict[str, object]]]] = {
        "api-1.log": [("03", {"event": "request", "request": REQUEST, "status": 202})],
        "super-conductor-1.log.1": [("05", {"event": "stage", "request": REQUEST, "instance": "i1"})],
        "cell-conductor-cell1.log": [
            ("09", {"event": "host silent", "level": "warning", "instance": "i1"}),
            ("04", {"event": "elsewhere", "instance": "i2"}),
            ("10", {"event": "request", "request": OTHER, "instance": "i1"}),
        ],
    }
    for name, lines in files.items():
        text = "\n".join(json.dumps({"timestamp": f"2026-01-01T00:00:{at}Z", **line}) for at, line in lines)
        (directory / name).write_text(f"Traceback of a child\n{text}\n")
    return directory


def test_its_lines_stand_in_order_of_time(logs: Path) -> None:
    done = CliRunner().invoke(skep, ["request", REQUEST, "--format", "json"])
    assert done.exit_code == 0, done.output
    found = [(line["process"], line["event"]) for line in json.loads(done.output)]
    assert found == [("api-1", "request"), ("super-conductor-1", "stage"), ("cell-conductor-cell1", "host silent")]


def test_text_says_when_where_and_what(logs: Path) -> None:
    lines = CliRunner().invoke(skep, ["request", REQUEST]).output.splitlines()
    assert lines[0].split() == ["2026-01-01T00:00:03Z", "api-1", "request", "status=202"]
    assert "[warning] host silent" in lines[2]


def test_what_cannot_be_found_is_said(logs: Path) -> None:
    absent = CliRunner().invoke(skep, ["request", new_request_id()])
    assert (absent.exit_code, f"no line of {logs} names" in absent.output) == (1, True)
    assert "SKEP_STATE__DIRECTORY" in absent.output
    wrong = CliRunner().invoke(skep, ["request", "one"])
    assert (wrong.exit_code, "expected `req-` and a UUID" in wrong.output) == (2, True)


def test_the_directory_that_was_searched_is_named_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", "elsewhere")
    said = CliRunner().invoke(skep, ["request", REQUEST]).output
    assert f"there are no logs in {tmp_path / 'elsewhere' / 'logs'}" in said
    assert "--config FILE or SKEP_STATE__DIRECTORY" in said


def test_lines_of_text_are_not_read_and_the_answer_says_so(logs: Path) -> None:
    request = new_request_id()
    (logs / "api-2.log").write_text(f"2026-01-01 00:00:03 [info] request   request={request}\n")
    said = CliRunner().invoke(skep, ["request", request]).output
    assert "Lines of text do, which are not read" in said
    assert f"grep {request} {logs / 'api-2.log'}" in said


def test_a_request_that_named_it_as_its_global_one_is_marked(logs: Path) -> None:
    theirs = {"timestamp": "2026-01-01T00:00:04Z", "event": "theirs", "request": OTHER, "global_request": REQUEST}
    own = {"timestamp": "2026-01-01T00:00:06Z", "event": "own", "request": REQUEST, "global_request": OTHER}
    (logs / "api-2.log").write_text(f"{json.dumps(theirs)}\n{json.dumps(own)}\n")
    lines = CliRunner().invoke(skep, ["request", REQUEST]).output.splitlines()
    marks = {line.split()[2]: line.endswith(f"request={OTHER} (this is its global request)") for line in lines}
    assert (marks.pop("theirs"), set(marks.values())) == (True, {False})


def test_a_reader_that_has_enough_is_no_error(logs: Path) -> None:
    line = {"timestamp": "2026-01-01T00:00:04Z", "event": "long", "request": REQUEST, "text": "x" * 100_000}
    (logs / "api-2.log").write_text(f"{json.dumps(line)}\n" * 20)
    command = [sys.executable, "-m", "skep.cli", "request", REQUEST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")
