"""A reader that has enough closes the pipe (`skep man | head -1`): the command ends, and says nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", [["man"], ["config", "docs"], ["host", "--help"]], ids=" ".join)
def test_a_command_ends_without_a_word_when_its_reader_leaves(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "skep.cli", *command], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")
