"""What a benchmark counts: the process that it started and all below, by role."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from skep.cli.benchmarks import process_tree

WORKS = "while time.process_time() < 0.05: pass"
"""The kernel tells what a process took in hundredths of a second."""
WAITS = f"import sys, time\n{WORKS}\nprint(flush=True); sys.stdin.read()"
STARTS_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}, 'serve', 'compute'])"


@pytest.fixture
def supervisor() -> Iterator[int]:
    """Return the pid of a process that has started another one in the role of a compute."""
    command = [sys.executable, "-c", STARTS_ONE, "up"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        yield parent.pid
        assert parent.stdin is not None
        parent.stdin.close()


def test_children_count_by_their_role(supervisor: int) -> None:
    assert process_tree.cpu_by_kind(supervisor).keys() == {"supervisor", "compute"}
    peaks = process_tree.peak_rss_by_kind(supervisor)
    assert peaks.keys() == {"supervisor", "compute"}
    assert min(peaks.values()) > 1


def test_what_has_ended_counts_with_its_parent() -> None:
    before = sum(process_tree.cpu_by_kind(os.getpid()).values())
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert sum(process_tree.cpu_by_kind(os.getpid()).values()) > before


def test_programs_of_one_role_count_apart() -> None:
    before = process_tree.cpu_by_kind(os.getpid(), programs_of="unknown")
    assert process_tree.PROGRAMS not in before
    (kind,) = {kind for kind in before if kind != "ended"}
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    apart = process_tree.cpu_by_kind(os.getpid(), programs_of=kind)
    assert apart[process_tree.PROGRAMS] > 0
    assert apart[kind] < sum(process_tree.cpu_by_kind(os.getpid()).values())


def test_processes_are_found_by_a_word_of_their_command_line(supervisor: int) -> None:
    del supervisor
    assert process_tree.cpu_of_naming(frozenset({WAITS})) > 0
    assert process_tree.cpu_of_naming(frozenset({"a word that no process has"})) == 0
