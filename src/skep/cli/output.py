"""What commands print: tables or JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import click
import msgspec

from skep.cli.tables import Table, draw, draw_record, folded

Format = Literal["table", "json"]
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

LEAST_ROOM = 40
"""Columns; on a narrower terminal lines are broken by the terminal."""
NOT_SHOWN = "Not shown for want of room: {titles}. A wider terminal shows more, --json everything."


def format_option(command: CommandT) -> CommandT:
    """Give a command `--format table|json`, and `--json`, which means the same as `--format json`."""
    return formats("table")(command)


def formats(default: Format) -> Callable[[CommandT], CommandT]:
    """Give a command `--format` and `--json`, where programs may be its usual readers."""

    def decorate(command: CommandT) -> CommandT:
        @functools.wraps(command)
        def run(*arguments: Any, form: Format | None, as_json: bool, **options: Any) -> Any:
            if as_json and form == "table":
                raise click.UsageError("--json and --format table contradict each other")
            return command(*arguments, form="json" if as_json else form or default, **options)

        choice = click.Choice(["table", "json"])
        text = f"How to print: for people or for programs.  [default: {default}]"
        short = click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
        return click.option("--format", "form", type=choice, help=text)(short(cast(CommandT, run)))

    return decorate


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print to a reader that may close the pipe when it has enough: no error then, and nothing more is written."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer is written when the program ends: it goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def print_rows(rows: Sequence[Mapping[str, Any]], table: Table, form: Format) -> None:
    """Print one line per row, as wide as the terminal; JSON has all keys of the rows."""
    if form == "json":
        print_json(rows)
        return
    width = room()
    drawn = draw(rows, table, width)
    for number, line in enumerate(drawn.lines):
        click.echo(click.style(line, bold=True) if number < drawn.titles else line)
    if drawn.left_out:
        text = NOT_SHOWN.format(titles=", ".join(drawn.left_out))
        for line in folded(text, width or len(text)):
            click.echo(line, err=True)


def print_record(record: Mapping[str, Any], form: Format) -> None:
    """Print one thing, a line per field."""
    if form == "json":
        print_json(record)
        return
    for line in draw_record(record, room()):
        click.echo(line)


def print_said(text: str, told: Mapping[str, Any], form: Format) -> None:
    """Print what a command did: in words, or what they tell as JSON."""
    if form == "json":
        print_json(told)
    else:
        click.echo(text)


def room() -> int | None:
    """Return how wide tables may be: as COLUMNS says, else as the terminal is; None where neither is there.

    A program that reads a table wants whole lines.
    """
    if os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty():
        return max(shutil.get_terminal_size().columns, LEAST_ROOM)
    return None


def counted(number: int, noun: str = "host") -> str:
    """Return how many there are of something: `1 host`, `2 hosts`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def progress(what: str, *, alone: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on standard error that something takes its time; yields how to say what it is at now.

    On a terminal it is one line that goes away, and programs are spared it. Where something else is written meanwhile
    (`alone` is False) each step is a line that stays. Two at once are one too many for a terminal.
    """
    if alone:
        if not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.console import Console

        with Console(stderr=True).status(what) as status:
            yield status.update
    else:
        click.echo(what, err=True)
        yield lambda step: click.echo(step, err=True)
