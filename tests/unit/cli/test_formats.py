"""`--json` and `--format json` mean the same for every command that prints data."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from skep.cli.main import skep
from skep.cli.man import commands
from skep.cli.output import Format, format_option, formats, print_record

SERVES = {"skep up", "skep serve"}
CONNECTS = {"skep server console", "skep server ssh"}
"""What they print is the guest's."""
WRITES_A_DOCUMENT = {
    "skep config docs",
    "skep nats config",
    "skep nats cell-config",
    "skep nats url",
    "skep nats credentials",
    "skep completion",
    "skep man",
}
"""What these print is a file, or the value of a variable, in a form of its own."""


def leaves() -> Iterator[tuple[str, click.Command]]:
    for name, context in commands(click.Context(skep, info_name="skep")):
        if not isinstance(context.command, click.Group):
            yield name, context.command


LEAVES = dict(leaves())


def test_the_exceptions_exist() -> None:
    assert LEAVES.keys() >= SERVES | CONNECTS | WRITES_A_DOCUMENT


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - SERVES - CONNECTS - WRITES_A_DOCUMENT))
def test_every_command_that_prints_data_takes_both(name: str) -> None:
    options = {word: one for one in LEAVES[name].params for word in one.opts if isinstance(one, click.Option)}
    assert {"--json", "--format"} <= options.keys()
    choice = options["--format"].type
    assert isinstance(choice, click.Choice)
    assert [*choice.choices] == ["table", "json"]
    assert options["--json"].is_flag


@click.command()
@format_option
def people(form: Format) -> None:
    print_record({"form": form}, form)


@click.command()
@formats("json")
def programs(form: Format) -> None:
    print_record({"form": form}, form)


@pytest.mark.parametrize(
    ("command", "words", "form"),
    [
        (people, [], "table"),
        (people, ["--json"], "json"),
        (people, ["--format", "json"], "json"),
        (people, ["--json", "--format", "json"], "json"),
        (people, ["--format", "table"], "table"),
        (programs, [], "json"),
        (programs, ["--format", "table"], "table"),
    ],
)
def test_what_they_mean(command: click.Command, words: list[str], form: str) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.output) if form == "json" else dict([done.output.split()])
    assert told == {"form": form}


def test_both_at_once_must_agree() -> None:
    done = CliRunner().invoke(people, ["--json", "--format", "table"])
    assert (done.exit_code, "contradict" in done.output) == (2, True)


def test_the_two_print_the_same() -> None:
    said = [CliRunner().invoke(skep, ["config", "show", *words]).output for words in (["--json"], ["--format", "json"])]
    assert said[0] == said[1]
    assert json.loads(said[0])
