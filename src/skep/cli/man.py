"""`skep man`: the manual page, made from the commands."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

import click

SECTION = 1
HEADINGS = (
    ("FILES", (".skep/", "The state directory: databases, keys, logs, clouds.yaml (setting state.directory).")),
    ("ENVIRONMENT", ("SKEP_CONFIG", "Configuration file, a TOML file. SKEP_SECTION__KEY sets one key.")),
    ("ENVIRONMENT", ("OS_CLOUD, OS_CLIENT_CONFIG_FILE", "Which cloud is meant, as for the openstack client.")),
    ("ENVIRONMENT", ("COLUMNS", "How wide tables are; default: as the terminal.")),
    ("EXIT STATUS", ("0", "Done.")),
    ("EXIT STATUS", ("1", "It failed, or a check found something wrong.")),
    ("EXIT STATUS", ("2", "It was asked for in a way that cannot work.")),
)
"""Sections behind the commands: heading, what is named, what it is."""


@click.command()
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page of skep with all commands, for man.

    \b
    Example: skep man > ~/.local/share/man/man1/skep.1
    """
    click.echo("\n".join(page(ctx.find_root().command, importlib.metadata.version("skep"))))


def page(root: click.Command, version: str) -> Iterator[str]:
    """Yield the lines of the page, in the macros of man(7)."""
    context = click.Context(root, info_name="skep")
    yield f'.TH SKEP {SECTION} "" "skep {_escaped(version)}" "User Commands"'
    summary, _, rest = _text(root).partition("\n\n")
    yield from (".SH NAME", f"skep \\- {_escaped(_joined(summary).removeprefix('Skep: ').rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B skep", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION", *_paragraphs(rest))
    yield ".SH COMMANDS"
    for name, context_of in commands(context):
        yield from _command(name, context_of)
    before = ""
    for heading, (name, text) in HEADINGS:
        yield from ([f".SH {heading}"] if heading != before else [])
        yield from (".TP", f".B {_escaped(name)}", _escaped(text))
        before = heading


def commands(context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """Yield all commands below one, groups before what is in them, by the words that call them."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield below.command_path, below
        yield from commands(below)


def _command(name: str, context: click.Context) -> Iterator[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    yield from (f".SS {_escaped(name)}", f".B {_escaped(name)}", _escaped(pieces), ".PP")
    yield from _paragraphs(_text(context.command))
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and not getattr(parameter, "is_eager", False):
            yield from (".TP", f".B {_escaped(record[0])}", _escaped(_joined(record[1])))


def _text(command: click.Command) -> str:
    return re.sub(r"(?m)^ {4}", "", (command.help or "").partition("\f")[0]).strip()


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs; what stands behind \\b keeps its lines."""
    for paragraph in filter(None, (one.strip("\n") for one in text.split("\n\n"))):
        if paragraph.startswith("\b"):
            yield from (".PP", ".nf", *(_escaped(line) for line in paragraph.splitlines()[1:]), ".fi")
        else:
            yield from (".PP", _escaped(_joined(paragraph)))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    """Return a text in which nothing is a macro or an escape."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{plain}" if plain.startswith((".", "\\(aq")) else plain
