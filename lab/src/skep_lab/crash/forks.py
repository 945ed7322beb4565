"""Children of tests that are forked from a process which has imported everything: importing costs more than starting.

The parent starts `PROCESSES.Process(target=...)` with the files that shall be the child's standard ones, each `Passed`;
the child's first act is `take`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from typing import Any

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["skep_lab.crash.child", "skep_lab.crash.role"])


def environment_without_skep() -> dict[str, str]:
    """Return this process's variables without those that would configure Skep."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}


class Passed:
    """A file that a child gets with its start."""

    def __init__(self, file: int) -> None:
        """Take a descriptor, which may be closed once the child was started."""
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        """Become, on the other side, a handle whose `detach` is the descriptor there."""
        return _received, (DupFd(self._file),)


def _received(file: Any) -> Any:
    return file


def take(environment: Mapping[str, str], *files: Any) -> None:
    """Be a child with these variables, and with this standard input, output and error."""
    for standard, file in enumerate(files):
        os.dup2(file.detach(), standard)
    os.environ.clear()
    os.environ.update(environment)
