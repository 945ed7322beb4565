"""OpenTelemetry spans over all hops of a build; off unless `[tracing]` names where they go, and then they cost nothing.

A place in a trace is a W3C `traceparent`. It goes three ways: in a variable of the task at work, in the envelope of
every message that is sent meanwhile, and in the request context that stands in rows and journals, so that a build that
another process takes up stays in its trace. A step that serves several requests at once is a span in each one's trace.

Tracing belongs to the process, as logging does: `configure` once at its start.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured

Attributes = Mapping[str, str | int]

NAME = "skep"
"""Of the instrumentation, and the first word of each service's name and of our attributes."""

_EXTRA = "it needs packages that are not installed: `pip install 'skep[tracing]'`"
_CURRENT: ContextVar[str] = ContextVar("skep_traceparent", default="")
_PROPAGATOR = TraceContextTextMapPropagator()
_TRACE_ID = slice(3, 35)
"""Where the trace's id stands in a `traceparent`."""

_tracer: trace.Tracer | None = None
_stop: list[Callable[[], object]] = []


def configure(role: str, *, endpoint: str, directory: str, sample_ratio: float) -> None:
    """Set up tracing for this process, once at its start; what is left is sent when the process ends.

    The arguments are those of `[tracing]`: a collector, a directory for files, the share of requests that are traced.

    Raises Misconfigured when it is asked for and cannot be.
    """
    if not endpoint and not directory:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider, export, sampling
    except ImportError:
        raise Misconfigured(f"tracing: {_EXTRA}") from None
    here = {"service.name": f"{NAME}-{role}", "service.instance.id": f"{socket.gethostname()}:{os.getpid()}"}
    sampler = sampling.ParentBased(sampling.TraceIdRatioBased(sample_ratio))
    provider = TracerProvider(sampler=sampler, resource=Resource.create(here))
    if endpoint:
        try:
            otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        except ImportError:
            raise Misconfigured(f"tracing.endpoint: {_EXTRA}") from None
        provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint)))
    if directory:
        try:
            folder = Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            out = (folder / f"{role}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise Misconfigured(f"tracing.directory: {error}") from error
        lines = export.ConsoleSpanExporter(out=out, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(export.BatchSpanProcessor(lines))
        _stop.append(out.close)
    use(provider)
    _stop.insert(0, provider.shutdown)


def stop() -> None:
    """End what `configure` began: send what waits and make no spans any more. Blocks; the end of a process does it."""
    use(None)
    while _stop:
        _stop.pop(0)()


def use(provider: trace.TracerProvider | None) -> None:
    """Make spans by this provider from now on; None: make none."""
    global _tracer  # noqa: PLW0603 - of the process
    _tracer = provider.get_tracer(NAME) if provider is not None else None


def current() -> str:
    """Return where the work at hand stands in its trace, as a `traceparent`; empty when it is in none."""
    return _CURRENT.get()


def follow(traceparent: str) -> None:
    """Let the rest of this task belong to a trace that was kept or received, unless it stands in that trace already."""
    if _tracer is not None and traceparent[_TRACE_ID] != _CURRENT.get()[_TRACE_ID]:
        _CURRENT.set(traceparent)


def leave() -> None:
    """Let the rest of this task belong to no trace: it is started while somebody is served, and then serves all."""
    _CURRENT.set("")


class Span:
    """A piece of work in one trace, under way: what is begun and sent inside is part of it."""

    __slots__ = ("_span", "_token", "traceparent")

    def __init__(self, tracer: trace.Tracer, name: str, parent: str, kind: SpanKind, attributes: Attributes) -> None:
        """Begin it; without a `parent` (a `traceparent`) it begins a trace."""
        self._span = tracer.start_span(name, _context_of(parent), kind, _ours(attributes))
        self._token: Token[str] | None = None
        at = self._span.get_span_context()
        self.traceparent = f"00-{at.trace_id:032x}-{at.span_id:016x}-{int(at.trace_flags):02x}"

    def __enter__(self) -> Self:
        """Make it the place of the work at hand."""
        self._token = _CURRENT.set(self.traceparent)
        return self

    def name(self, name: str, attributes: Attributes) -> None:
        """Give it the name that is known only now, and attributes."""
        self._span.update_name(name)
        self._span.set_attributes(_ours(attributes))

    def fail(self, what: str) -> None:
        """Mark it as failed, by the name of the error."""
        self._span.set_status(Status(StatusCode.ERROR, what))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it, as failed when an error passes through."""
        if self._token is not None:
            _CURRENT.reset(self._token)
        if kind is not None:
            self.fail(kind.__name__)
        self._span.end()


def request(traceparent: str) -> AbstractContextManager[Span | None]:
    """Return the span of a request over HTTP; a client's `traceparent` is what it belongs to. None while off."""
    if _tracer is None:
        return nullcontext()
    return Span(_tracer, "request", traceparent, SpanKind.SERVER, {})


def message(name: str, traceparent: str, *, answered: bool) -> AbstractContextManager[Span | None]:
    """Return the span of handling a message that came with this `traceparent`; none for one of no trace."""
    if _tracer is None or not traceparent:
        return nullcontext()
    return Span(_tracer, name, traceparent, SpanKind.SERVER if answered else SpanKind.CONSUMER, {})


class StepTrace:
    """The spans of one step: one in the trace of each request that it serves, all of the same time."""

    __slots__ = ("_attributes", "_began", "_name", "_span", "_tracer", "_traces")

    def __init__(self, tracer: trace.Tracer, name: str, contexts: Iterable[RequestContext], keys: Attributes) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = keys
        self._began = time.time_ns()
        self._span: Span | None = None
        here = _CURRENT.get()
        self._traces = _places(contexts) or ((here,) if here else ())
        if len(self._traces) == 1:
            self._span = Span(tracer, name, self._traces[0], SpanKind.INTERNAL, keys)
            self._span.__enter__()

    def serves(self, contexts: Iterable[RequestContext]) -> None:
        """Say, where that is known only now, whom the step serves."""
        self._traces = _places(contexts)

    def end(self, outcome: str, *, failed: bool, members: int) -> None:
        """End it; `outcome` is that of the step."""
        found: dict[str, str | int] = {"outcome": outcome}
        if members:
            found["members"] = members
        if self._span is not None:
            self._span.name(self._name, found)
            if failed:
                self._span.fail(outcome)
            self._span.__exit__(None, None, None)
            return
        for place in self._traces:
            span = self._tracer.start_span(
                self._name, _context_of(place), attributes=_ours({**self._attributes, **found}), start_time=self._began
            )
            if failed:
                span.set_status(Status(StatusCode.ERROR, outcome))
            span.end()


def step(name: str, contexts: Iterable[RequestContext], keys: Attributes) -> StepTrace | None:
    """Begin the spans of a step that serves these requests, or else the work at hand; None while off."""
    return StepTrace(_tracer, name, contexts, keys) if _tracer is not None else None


def _places(contexts: Iterable[RequestContext]) -> tuple[str, ...]:
    """Return one place in each trace of these requests: where the work at hand is, or else where the request began."""
    here = _CURRENT.get()
    places = {one.traceparent[_TRACE_ID]: one.traceparent for one in contexts if one.traceparent}
    if here[_TRACE_ID] in places:
        places[here[_TRACE_ID]] = here
    return tuple(places.values())


def _context_of(traceparent: str) -> Context:
    return _PROPAGATOR.extract({"traceparent": traceparent}, Context()) if traceparent else Context()


def _ours(attributes: Attributes) -> dict[str, str | int]:
    return {f"{NAME}.{key}": value for key, value in attributes.items()}
