"""What commands print: tables or JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Format = Literal["table", "json"]
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

WIDE = 250
"""Columns where nobody looks: a program that reads a table wants whole lines."""


def format_option(command: CommandT) -> CommandT:
    """Give a command `--format table|json`."""
    option = click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="How to print: for people or for programs.",
    )
    return option(command)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], form: Format) -> None:
    """Print one line per row. `columns`: key of a row -> title; JSON has all keys of the rows."""
    if form == "json":
        print_json(rows)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(row.get(key))) for key in columns))
    console().print(table)


def print_record(record: Mapping[str, Any], form: Format) -> None:
    """Print one thing, a line per field."""
    if form == "json":
        print_json(record)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in record.items():
        table.add_row(key, Text(shown(value)))
    console().print(table)


def shown(value: Any) -> str:
    """Return a value as people write it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or "-"
    if isinstance(value, Sequence):
        return ", ".join(shown(item) for item in value) or "-"
    return str(value)


def counted(number: int, noun: str = "host") -> str:
    """Return how many there are of something: `1 host`, `2 hosts`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def console() -> Console:
    """Return standard output as rich writes it."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, soft_wrap=False)


@contextlib.contextmanager
def progress(what: str, *, alone: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on standard error that something takes its time; yields how to say what it is at now.

    On a terminal it is one line that goes away, and programs are spared it. Where something else is written meanwhile
    (`alone` is False) each step is a line that stays. Two at once are one too many for a terminal.
    """
    if alone:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield lambda _: None
            return
        with console.status(what) as status:
            yield status.update
    else:
        click.echo(what, err=True)
        yield lambda step: click.echo(step, err=True)
