"""What a log line looks like, what stands on it, and what happens when it cannot be written."""

from __future__ import annotations

import io
import json
import logging

import pytest

from skep.telemetry import logs


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_where_nobody_reads_along() -> None:
    stream = io.StringIO()
    logs.configure("info", "auto", stream)
    logs.get_logger("skep.example").info("host refused", reason="no\nroom")
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {"event": "host refused", "reason": "no\nroom", "level": "info", "source": "skep.example"}


def test_text_leaves_out_the_payload_of_notifications() -> None:
    stream = io.StringIO()
    logs.configure("info", "text", stream)
    logs.get_logger("skep.example").info("instance.create.end", payload={"deep": "content"}, host="a")
    assert "instance.create.end" in stream.getvalue()
    assert "host=a" in stream.getvalue()
    assert "deep" not in stream.getvalue()


def test_levels_below_the_threshold_are_silent() -> None:
    stream = io.StringIO()
    logs.configure("warning", "json", stream)
    log = logs.get_logger("skep.example")
    log.info("unheard")
    log.warning("heard")
    assert [line["event"] for line in lines(stream)] == ["heard"]


def test_context_stands_on_every_line_of_the_block() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log = logs.get_logger("skep.example")
    with logs.context(request="req-1", instance="i", attempt=2, host="h", cell="c"):
        log.info("inside")
        logging.getLogger("library").warning("theirs %s", "too")
    log.info("outside")
    inside, theirs, outside = lines(stream)
    keys = {"request": "req-1", "instance": "i", "attempt": 2, "host": "h", "cell": "c"}
    assert keys.items() <= inside.items()
    assert keys.items() <= theirs.items()
    assert (theirs["source"], theirs["event"], theirs["level"]) == ("library", "theirs too", "warning")
    assert not keys.keys() & outside.keys()


def test_talkative_libraries_are_heard_from_warning_on() -> None:
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    logging.getLogger("httpx").info("HTTP Request: GET")
    logging.getLogger("httpx").warning("broken")
    assert [line["event"] for line in lines(stream)] == ["broken"]


def test_an_exception_of_a_library_keeps_its_traceback() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    error = RuntimeError("boom")
    logging.getLogger("library").error("failed", exc_info=error)
    (line,) = lines(stream)
    assert "RuntimeError: boom" in str(line["exception"])


class FullDisk(io.StringIO):
    """A stream that can be full."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_that_cannot_be_written_are_counted_and_told_later() -> None:
    stream = FullDisk()
    output = logs.configure("info", "json", stream)
    log = logs.get_logger("skep.example")
    log.info("one")
    log.info("two")
    assert output.lost == 2
    stream.full = False
    log.info("three")
    first, second = lines(stream)
    assert (first["event"], first["lines"], second["event"]) == ("log lines lost", 2, "three")


def test_a_second_configuration_reaches_loggers_in_use() -> None:
    log = logs.get_logger("skep.example")
    first, second = io.StringIO(), io.StringIO()
    logs.configure("info", "json", first)
    log.info("to the first")
    logs.configure("info", "text", second)
    log.info("to the second")
    assert "to the second" not in first.getvalue()
    assert "to the second" in second.getvalue()


def test_lines_are_held_back_until_something_else_is_said() -> None:
    stream = io.StringIO()
    output = logs.configure("debug", "json", stream)
    log = logs.get_logger("skep.example")
    output.hold()
    log.info("first")
    log.debug("second")
    log.warning("at once")
    assert [line["event"] for line in lines(stream)] == ["at once"]
    output.release(write=True)
    log.info("last")
    assert [line["event"] for line in lines(stream)] == ["at once", "first", "second", "last"]
    output.hold()
    log.info("unwanted")
    output.release(write=False)
    output.release(write=True)
    assert "unwanted" not in stream.getvalue()


def test_a_start_that_says_too_much_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logs, "MOST_HELD", 2)
    output = logs.configure("info", "json", stream)
    output.hold()
    for number in range(3):
        logs.get_logger("skep.example").info("line", number=number)
    assert [line["number"] for line in lines(stream)] == [0, 1, 2]
