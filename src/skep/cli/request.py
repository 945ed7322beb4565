"""`skep request`: what every process of this machine logged of one request, in order of time."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import Format, format_option, print_json, reader_may_leave
from skep.domain.decoding import json_decoder
from skep.domain.ids import is_uuid

REQUEST_KEYS = ("request", "global_request", "request_id")
ELSEWHERE = "for another state directory use --config FILE or SKEP_STATE__DIRECTORY"
FRAME = ("timestamp", "level", "event", "process", "payload", "source", *REQUEST_KEYS)
"""Keys that a line of text shows in places of their own, or not at all."""


@click.command()
@click.argument("request_id", metavar="REQUEST-ID")
@format_option
@config_option
def request(request_id: str, form: Format, config_file: Path | None) -> None:
    """Show the log lines of one request, across all processes and files of this machine.

    The request id is in the header x-openstack-request-id of every answer, and in `openstack server event list`. Lines
    about its servers that belong to no request are shown too. The logs are those of the state directory
    (state.directory, `.skep` where `skep` is called): `skep up` writes them there, as JSON. For another one say
    --config FILE or SKEP_STATE__DIRECTORY.

    \b
    Example: skep request req-5c2a7d6e-3f43-4c7e-9d0f-0f6a1d1f0c11
    """
    from skep.config import load

    if not (request_id.startswith("req-") and is_uuid(request_id.removeprefix("req-"))):
        raise CommandRefused(f"{request_id!r} is not a request id: expected `req-` and a UUID")
    directory = (Path(load(config_file, os.environ).config.state.directory) / "logs").absolute()
    if not directory.is_dir():
        raise Failed(f"there are no logs in {directory}: `skep up` writes them there; {ELSEWHERE}")
    found = story(request_id, lambda: lines_of(directory))
    if not found:
        raise Failed(f"no line of {directory} names {request_id}; {ELSEWHERE}{_as_plain_text(request_id, directory)}")
    with reader_may_leave():
        if form == "json":
            print_json(found)
            return
        for line in found:
            click.echo(as_text(line, request_id))


def lines_of(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of all logs, each with the `process` that wrote it; what is no JSON object is left out."""
    for file in sorted(directory.glob("*.log*")):
        process = file.name.partition(".log")[0]
        with file.open("rb") as lines:
            for line in lines:
                try:
                    read = json_decoder(dict[str, Any]).decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                yield {**read, "process": process}


def _as_plain_text(request_id: str, directory: Path) -> str:
    """Say which files name the request in lines that are no JSON; empty where none does."""
    wanted = request_id.encode()
    files = [file for file in sorted(directory.glob("*.log*")) if _holds(file, wanted)]
    if not files:
        return ""
    return f".\nLines of text do, which are not read: grep {request_id} {' '.join(map(str, files))}"


def _holds(file: Path, wanted: bytes) -> bool:
    with file.open("rb") as lines:
        return any(wanted in line for line in lines)


def story(request_id: str, read: Callable[[], Iterable[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return the lines of a request, and those of its servers that name no request, in order of time.

    `read` is called twice, so that what is held is what is returned.
    """
    instances = {line["instance"] for line in read() if _names(line, request_id) and line.get("instance")}
    found = [line for line in read() if _names(line, request_id) or _is_about(line, instances)]
    return sorted(found, key=lambda line: str(line.get("timestamp", "")))


def as_text(line: Mapping[str, Any], request_id: str) -> str:
    """Return a line for people: time, process, what happened, then the other keys.

    Whoever asks may name any id as the global request: the line of a request that did shows its own id.
    """
    more = " ".join(f"{key}={value}" for key, value in line.items() if key not in FRAME and value is not None)
    level = "" if line.get("level") in (None, "info") else f" [{line['level']}]"
    own = line.get("request") or line.get("request_id")
    if own and own != request_id:
        more = f"{more} request={own} (this is its global request)".lstrip()
    return f"{line.get('timestamp', '-')}  {line['process']:<20}{level} {line.get('event', '')}  {more}".rstrip()


def _names(line: Mapping[str, Any], request_id: str) -> bool:
    return any(line.get(key) == request_id for key in REQUEST_KEYS)


def _is_about(line: Mapping[str, Any], instances: Collection[Any]) -> bool:
    return line.get("instance") in instances and not any(line.get(key) for key in REQUEST_KEYS)
