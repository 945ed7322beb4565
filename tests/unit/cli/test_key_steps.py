"""The checklists that `skep keys steps` prints are those of docs/keys.md, and the commands in them exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import skep
from skep.cli.key_steps import CHECKLISTS, WAYS
from skep.cli.main import skep as command_line
from skep.cli.man import commands

PAGE = (Path(skep.__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
KNOWN = {name for name, _ in commands(click.Context(command_line, info_name="skep"))}


@pytest.mark.parametrize("secret", CHECKLISTS)
def test_the_page_has_each_step_in_order(secret: str) -> None:
    text = "\n".join(f"{number}. {step}" for number, step in enumerate(CHECKLISTS[secret], 1))
    assert f"{WAYS[secret]}\n\n{text}\n" in PAGE


@pytest.mark.parametrize("secret", CHECKLISTS)
def test_each_command_of_a_step_exists(secret: str) -> None:
    named = [words for step in CHECKLISTS[secret] for words in re.findall(r"\bskep ([a-z][a-z -]*[a-z])", step)]
    assert named
    for words in named:
        assert any(f"skep {words}".startswith(name) for name in KNOWN), words


def test_they_are_printed() -> None:
    said = CliRunner().invoke(command_line, ["keys", "steps", "tokens"]).output
    assert " 1. skep keys rotate tokens" in said
    told = json.loads(CliRunner().invoke(command_line, ["keys", "steps", "tokens", "--json"]).output)
    assert told["steps"] == [*CHECKLISTS["tokens"]]
