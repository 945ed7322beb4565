"""Completion and the manual page are made from the commands, and a shell and man can read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from skep.cli.completion import SHELLS
from skep.cli.main import COMMANDS, skep
from skep.cli.man import commands, page

SCRIPT = """
set -eu
source "$1"
complete -p skep
try() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _skep_completion "$SKEP"
    echo "$* -> ${COMPREPLY[*]}"
}
try skep ho
try skep host fo
try skep host list --fo
try skep host list --format ''
"""


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    program = tmp_path / "skep"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skep.cli "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "completion.bash"
    script.write_text(CliRunner().invoke(skep, ["completion", "bash"]).output)
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", SCRIPT, "bash", str(script)],
        env={**os.environ, "SKEP": str(program)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _skep_completion skep",
        "skep ho -> host",
        "skep host fo -> force-down",
        "skep host list --fo -> --format",
        "skep host list --format  -> table json",
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_asks_skep(shell: str) -> None:
    script = CliRunner().invoke(skep, ["completion", shell]).output
    assert f"_SKEP_COMPLETE={shell}_complete" in script
    program = shutil.which(shell)
    if program is not None:
        assert subprocess.run([program, "-n"], input=script.encode(), check=False).returncode == 0


def test_completing_a_command_imports_none() -> None:
    context = click.Context(skep, info_name="skep")
    assert {item.value for item in skep.shell_complete(context, "")} == {*COMMANDS}
    code = "import sys; from skep.cli.main import main; main()"
    env = {**os.environ, "_SKEP_COMPLETE": "bash_complete", "COMP_WORDS": "skep h", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "plain,host\n"
    assert "skep.cli.host" not in done.stderr


def test_the_page_has_every_command_and_option() -> None:
    text = CliRunner().invoke(skep, ["man"]).output
    for name, context in commands(click.Context(skep, info_name="skep")):
        assert f".SS {name}".replace("-", "\\-") in text
        for parameter in context.command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0].replace("-", "\\-") in text, name


def test_no_text_becomes_a_macro() -> None:
    @click.command(help=".TH is no macro here\n\n\b\n'quoted' \\n --and-so-on\n.PP")
    def strange() -> None: ...

    lines = [*page(click.Group("skep", help="Skep: x", commands={"strange": strange}), "1")]
    assert r"\&.TH is no macro here" in lines
    assert r"\&\(aqquoted\(aq \en \-\-and\-so\-on" in lines
    assert r"\&.PP" in lines


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_page_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "skep.1"
    file.write_text(CliRunner().invoke(skep, ["man"]).output)
    done = subprocess.run(["groff", "-man", "-ww", "-z", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
