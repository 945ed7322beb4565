"""The walk in which a guest gets and loses devices, in namespaces that a test makes:
`python -m tests.support.walked_devices DIRECTORY`.

Each line of standard input is a case or the name of an operation, and is answered by a line: what was called, or why
not all was well. At its end the cloud is stopped.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from skep.telemetry import logs
from skep_lab.beside.libvirt_walk import DeviceCase, LibvirtBeside, called, die_at

T = TypeVar("T")


class WalkTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: one of these."""

    case: DeviceCase | None = None
    operation: str = ""
    """To say what is called for it."""


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    calls: tuple[str, ...] = ()
    failed: str = ""


class Walks:
    """A cloud that is made anew after a failure."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._walk: LibvirtBeside | None = None

    def do(self, story: Callable[[LibvirtBeside], T]) -> T:
        """Do something with a cloud, and see that nothing is left."""
        if self._walk is None:
            self._walk = LibvirtBeside(Path(tempfile.mkdtemp(dir=self._root)))
        walk = self._walk
        try:
            if not walk.process.lives:
                walk.start()
            found = story(walk)
            walk.clear()
        except BaseException:
            walk.process.kill()
            self.stop()
            raise
        return found

    def stop(self) -> None:
        """Stop the cloud, if there is one."""
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.stop()


def do(walks: Walks, task: WalkTask) -> Walked:
    """Do one task."""
    case = task.case
    try:
        if case is None:
            return Walked(calls=walks.do(lambda walk: called(walk, task.operation)))
        walks.do(lambda walk: die_at(walk, case))
    except Exception:  # noqa: BLE001 - the test is told
        return Walked(failed=traceback.format_exc())
    return Walked()


def main(root: Path) -> None:
    """Do tasks until there are no more."""
    # The test reads what is on standard output.
    logs.configure("warning")
    walks = Walks(root)
    for line in sys.stdin:
        said = do(walks, msgspec.json.decode(line, type=WalkTask))
        sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
        sys.stdout.flush()
    walks.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
