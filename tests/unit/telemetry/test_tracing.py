"""Steps and messages are spans of the requests they serve; while tracing is off there is nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured
from skep.domain.ids import RequestId
from skep.messages.to_super_conductor import DeleteInstances
from skep.telemetry import tracing
from skep.telemetry.metrics import Metrics
from skep.telemetry.steps import Steps
from skep.transport import codec

FIRST = "00-11111111111111111111111111111111-aaaaaaaaaaaaaaaa-01"
SECOND = "00-22222222222222222222222222222222-bbbbbbbbbbbbbbbb-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)


def of(traceparent: str) -> RequestContext:
    return RequestContext(request_id=RequestId("req-1"), traceparent=traceparent)


def place(span: ReadableSpan) -> tuple[str, str]:
    """Return the trace and the parent of a span, as a `traceparent` names them."""
    assert span.context is not None
    assert span.parent is not None
    return f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}"


async def test_a_step_is_a_span_of_the_request_that_it_serves(spans: InMemorySpanExporter) -> None:
    async with Steps(Metrics()).step("stage", instance="i", attempt=2, contexts=(of(FIRST),)) as run:
        run.outcome = "replaced"
    (span,) = spans.get_finished_spans()
    assert span.name == "stage"
    assert place(span) == ("1" * 32, "a" * 16)
    assert span.attributes == {"skep.instance": "i", "skep.attempt": 2, "skep.outcome": "replaced"}


async def test_a_step_for_several_requests_is_a_span_in_each_trace(spans: InMemorySpanExporter) -> None:
    async with Steps(Metrics()).step("map", members=3, contexts=(of(one) for one in (FIRST, SECOND, FIRST))):
        assert tracing.current() == ""
    found = spans.get_finished_spans()
    assert {place(span) for span in found} == {("1" * 32, "a" * 16), ("2" * 32, "b" * 16)}
    assert len(found) == 2
    assert found[0].start_time == found[1].start_time


async def test_whom_a_step_serves_may_be_said_late(spans: InMemorySpanExporter) -> None:
    async with Steps(Metrics()).step("take") as run:
        run.serves([of(FIRST)])
    (span,) = spans.get_finished_spans()
    assert place(span) == ("1" * 32, "a" * 16)


async def test_what_is_sent_inside_a_step_is_part_of_it(spans: InMemorySpanExporter) -> None:
    async with Steps(Metrics()).step("select", contexts=(of(FIRST),)):
        *_, sent = codec.decode_traced(codec.encode(DeleteInstances(), of(FIRST)))
    (span,) = spans.get_finished_spans()
    assert span.context is not None
    assert sent == f"00-{'1' * 32}-{span.context.span_id:016x}-01"
    assert tracing.current() == ""


async def test_a_message_outside_of_any_step_bears_the_place_of_its_request(spans: InMemorySpanExporter) -> None:
    *_, sent = codec.decode_traced(codec.encode(DeleteInstances(), of(FIRST)))
    assert sent == FIRST
    with tracing.message("DeleteInstances", sent, answered=False):
        pass
    (span,) = spans.get_finished_spans()
    assert place(span) == ("1" * 32, "a" * 16)


@pytest.mark.parametrize("given", ["", "nonsense", "00-0-0-00", "00-" + "0" * 32 + "-" + "a" * 16 + "-01"])
def test_a_request_without_a_usable_place_begins_a_trace(spans: InMemorySpanExporter, given: str) -> None:
    with tracing.request(given) as span:
        assert span is not None
        assert span.traceparent.startswith("00-")
        assert tracing.current() == span.traceparent
    (done,) = spans.get_finished_spans()
    assert done.parent is None


def test_what_the_client_leaves_out_of_its_traces_is_left_out_here(spans: InMemorySpanExporter) -> None:
    with tracing.request(FIRST[:-2] + "00") as span:
        assert span is not None
        assert span.traceparent.endswith("-00")
    assert spans.get_finished_spans() == ()


async def test_an_error_marks_the_span(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"):
        async with Steps(Metrics()).step("stage", contexts=(of(FIRST),)):
            raise ValueError("no")
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok


@pytest.mark.usefixtures("spans")
async def test_a_task_follows_what_it_took_up_and_may_leave_it() -> None:
    async def story() -> None:
        tracing.follow(FIRST)
        assert tracing.current() == FIRST
        tracing.follow(FIRST.replace("a" * 16, "c" * 16))
        assert tracing.current() == FIRST  # it stands in that trace already, and nearer to what it does
        tracing.follow(SECOND)
        assert tracing.current() == SECOND
        tracing.leave()
        assert tracing.current() == ""

    await asyncio.create_task(story())


async def test_while_it_is_off_there_is_nothing() -> None:
    with tracing.request(FIRST) as span:
        assert span is None
    async with Steps(Metrics()).step("stage", contexts=(of(FIRST),)) as run:
        run.serves([of(FIRST)])
        assert tracing.current() == ""
    tracing.follow(FIRST)
    assert tracing.current() == ""


def test_each_process_writes_its_spans_to_a_file(tmp_path: Path) -> None:
    try:
        tracing.configure("compute", endpoint="", directory=str(tmp_path / "spans"), sample_ratio=1.0)
        with tracing.message("BuildAndRunInstance", FIRST, answered=False):
            pass
    finally:
        tracing.stop()
    (file,) = (tmp_path / "spans").iterdir()
    span = json.loads(file.read_text())
    assert span["name"] == "BuildAndRunInstance"
    assert span["parent_id"] == "0x" + "a" * 16
    assert span["resource"]["attributes"]["service.name"] == "skep-compute"


def test_a_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match=r"tracing\.directory"):
        tracing.configure("api", endpoint="", directory=str(tmp_path / "file"), sample_ratio=1.0)


def test_a_message_of_a_release_that_did_not_trace_is_read() -> None:
    import msgspec

    old = msgspec.msgpack.decode(codec.encode(DeleteInstances(), None))[:3]
    message, context, traceparent = codec.decode_traced(msgspec.msgpack.encode(old))
    assert (message, context, traceparent) == (DeleteInstances(), None, "")
