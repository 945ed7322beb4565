"""Log lines on standard error: text on a terminal, one JSON object per line otherwise; and in a file, if one is named.

Modules take their logger by `log = get_logger(__name__)` and write events with keys, never formatted
sentences: `log.info("host refused", reason="...")`. The keys request, instance, attempt, host and cell are
bound once with `context(...)` and then stand on every line of that task, also on those of libraries.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from skep.telemetry.log_file import LogFile

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "text", "json"]

_TALKATIVE = (
    *("alembic", "asyncio", "httpcore", "httpx", "oslo_policy", "sqlalchemy", "stevedore"),
    *("uvicorn.access", "uvicorn.error"),
)
"""Libraries whose information is a developer's, not an operator's: they are heard from `warning` on."""


MOST_HELD = 10_000
"""Lines that are kept back; a start that says more is in trouble, and is heard."""


def get_logger(name: str) -> FilteringBoundLogger:
    """Return the logger of a module; its name stands on each line as `source`."""
    logger: FilteringBoundLogger = structlog.get_logger(source=name)
    return logger


def context(
    *,
    request: str | None = None,
    instance: str | None = None,
    attempt: int | None = None,
    host: str | None = None,
    cell: str | None = None,
) -> AbstractContextManager[None]:
    """Put the given keys on every log line of the current task until the block ends."""
    keys = {"request": request, "instance": instance, "attempt": attempt, "host": host, "cell": cell}
    return structlog.contextvars.bound_contextvars(**{key: value for key, value in keys.items() if value is not None})


class Output:
    """The stream lines go to. Where it cannot be written, lines are counted instead of failing the work at
    hand.

    A full disk under a redirected standard error must not turn a build into an error; the first line that can
    be written again is preceded by the number of those that were lost.
    """

    def __init__(self) -> None:
        self.stream: TextIO | None = None
        self.lost = 0
        self._held: list[str] | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person is likely to read along."""
        return self._current().isatty()

    def hold(self) -> None:
        """Keep back what is no warning, until `release`: something else is said first, in one piece."""
        self._held = []

    def release(self, *, write: bool) -> None:
        """Write from now on, and what was kept back too unless nobody wants it. Without `hold` it does nothing."""
        held, self._held = self._held, None
        for line in held or () if write else ():
            self.msg(line)

    def info(self, line: str) -> None:
        """Write a line that may be kept back."""
        if self._held is None:
            self.msg(line)
        elif len(self._held) < MOST_HELD:
            self._held.append(line)
        else:
            self.release(write=True)
            self.msg(line)

    def msg(self, line: str) -> None:
        """Write one line. structlog calls the method of the level: those of warnings and errors are this one."""
        stream = self._current()
        try:
            if self.lost:
                stream.write(f'{{"event": "log lines lost", "lines": {self.lost}}}\n')
                self.lost = 0
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self.lost += 1

    debug = info
    warning = error = critical = msg

    def _current(self) -> TextIO:
        # Looked up each time: whoever redirects standard error expects us to follow.
        return self.stream if self.stream is not None else sys.stderr


_OUTPUT = Output()
_PROCESSORS: list[Processor] = []
# Logging belongs to the process, and loggers keep what they found at their first use, because asking each
# time costs more than the line. So both are changed in place: a second `configure` reaches every logger (but
# for its level).


def configure(
    level: Level = "info",
    form: Format = "auto",
    stream: TextIO | None = None,
    *,
    file: LogFile | None = None,
    warnings_only: bool = False,
    file_only: bool = False,
) -> Output:
    """Set up logging for this process, once at its start, and return where the lines go.

    Without a stream lines go to standard error. With a `file` all of them go there too, as JSON; with `warnings_only`
    the stream gets nothing below a warning, with `file_only` nothing. Levels below `level` cost one method call. What
    libraries write to Python's own logging is routed through the same lines.
    """
    _OUTPUT.stream = stream
    as_text = form == "text" or (form == "auto" and _OUTPUT.is_terminal)
    written = [_into(file)] if file is not None else []
    kept = [_nothing] if file_only else [_warnings] if warnings_only else []
    _PROCESSORS[:] = [*_SHARED, *written, *kept, *_rendering(as_text, colours=_OUTPUT.is_terminal)]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=_PROCESSORS,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _OUTPUT,
        cache_logger_on_first_use=True,
    )
    _adopt_libraries(threshold)
    return _OUTPUT


def _into(file: LogFile) -> Processor:
    """Return the step that writes each line into the file, as JSON."""

    def write(logger: Any, method: str, event: EventDict) -> EventDict:
        file.write(_line(logger, method, structlog.processors.format_exc_info(logger, method, {**event})))
        return event

    return write


def _warnings(_: Any, __: str, event: EventDict) -> EventDict:
    """Let warnings pass, and what is worse."""
    if event["level"] in ("debug", "info"):
        raise structlog.DropEvent
    return event


def _nothing(_: Any, __: str, ___: EventDict) -> EventDict:
    """Let nothing pass."""
    raise structlog.DropEvent


def _rendering(as_text: bool, colours: bool) -> list[Processor]:
    if as_text:
        plain = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
        return [_without_payload, plain]
    return [structlog.processors.format_exc_info, _line]


def _without_payload(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Drop what nobody reads on a terminal: the payload of a notification is a screen by itself."""
    event.pop("payload", None)
    return event


def _as_json(event: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _line(_: Any, __: str, event: EventDict) -> str:
    return _as_json(event)


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


class _Adopted(logging.Handler):
    """Hands records of Python's logging to structlog."""

    def __init__(self) -> None:
        super().__init__()
        self._log = structlog.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        exception = {"exc_info": record.exc_info} if record.exc_info else {}
        self._log.log(record.levelno, record.getMessage(), source=record.name, **exception)


def _adopt_libraries(threshold: int) -> None:
    root = logging.getLogger()
    # `basicConfig` of some library would print each line a second time; handlers of others are not ours to
    # remove.
    kept = [one for one in root.handlers if not isinstance(one, _Adopted) and type(one) is not logging.StreamHandler]
    root.handlers = [*kept, _Adopted()]
    root.setLevel(threshold)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))
