"""`skep server console`: what a person at a terminal is told."""

from __future__ import annotations

import os
import subprocess
import sys

ATTENDS = "from skep.cli.serial_console import attend; attend('ws://127.0.0.1:1/')"


def said_to(stdin: int) -> str:
    """Return what attending to a console says that nothing listens for."""
    done = subprocess.run([sys.executable, "-c", ATTENDS], stdin=stdin, capture_output=True, text=True, check=False)
    assert "the console cannot be reached" in done.stderr
    return done.stderr


def test_a_terminal_is_told_how_to_leave() -> None:
    ours, theirs = os.openpty()
    try:
        assert said_to(theirs).startswith("Ctrl-] leaves the console.\n")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_pipe_is_not() -> None:
    assert "Ctrl-]" not in said_to(subprocess.DEVNULL)
