"""One role of a cloud of processes, through as many lives as a test wants: started, killed, paused, armed, stopped."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Mapping
from io import FileIO
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from skep.contracts.eventually import PATIENCE
from skep.processes.supervisor.child import ChildTask
from skep_lab.crash.child import ChildOrder
from skep_lab.crash.forks import PROCESSES, Passed
from skep_lab.crash.points import Point
from skep_lab.crash.role import RoleOrder, run_child
from skep_lab.crash.said import HeardLines

START_PATIENCE = 3 * PATIENCE
"""Seconds that a process may need to take work: a dozen import everything at once on a busy machine."""
NOWHERE = Point(way="before")
"""Arming it disarms."""


class RoleDied(AssertionError):
    """A process ended although nobody told it to, did not start, or does not obey."""


class RoleChild:
    """The process of one order of the plan. Its methods block; none is called by two threads at once."""

    def __init__(self, order: ChildTask, environment: Mapping[str, str], logs: Path, *, stop_seconds: float) -> None:
        self.order = order
        self.log = logs / f"{order.name}.log"
        self.clock_offset = 0
        """Microseconds by which the clock of its next life is ahead."""
        self.lives = 0
        self._environment = {**environment, **dict(order.settings)}
        self._stop_seconds = stop_seconds
        self._child: BaseProcess | None = None
        self._orders: FileIO | None = None
        self._said: FileIO | None = None
        self._hearing: HeardLines | None = None
        self._started = False

    @property
    def running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._child is not None and self._child.is_alive()

    @property
    def status(self) -> int | None:
        """How the last life ended; None while it lasts."""
        return self._child.exitcode if self._child is not None else None

    def start(self) -> None:
        """Start the process and wait for nothing."""
        self._let_go()
        order = RoleOrder(role=self.order.role, arguments=self.order.arguments, clock_offset=self.clock_offset)
        (orders, told), (heard, said) = os.pipe(), os.pipe()
        with self.log.open("ab") as log, os.fdopen(orders, "rb") as theirs, os.fdopen(said, "wb") as answers:
            self._orders, self._said = os.fdopen(told, "wb", buffering=0), os.fdopen(heard, "rb", buffering=0)
            files = [Passed(file.fileno()) for file in (theirs, answers, log)]
            self._child = PROCESSES.Process(target=run_child, args=(order, self._environment, *files), daemon=True)
            self._child.start()
        self._hearing, self._started = HeardLines(self._said.fileno()), False
        self.lives += 1

    def wait_started(self, seconds: float = START_PATIENCE) -> None:
        """Wait until the role takes work. Raises RoleDied."""
        assert self._hearing is not None
        deadline = time.monotonic() + seconds
        while not self._started:
            said = self._hearing.next(deadline)
            if said is None:
                raise RoleDied(f"{self.order.name} did not start ({self.status}); the end of its log:\n{self.tail()}")
            self._started = said.event == "started"

    def arm(self, point: Point) -> None:
        """Have the process end itself at `point`; returns once it knows, or is dead. Raises RoleDied."""
        if self._orders is None or self._child is None:
            return
        try:
            self._orders.write(msgspec.json.encode(ChildOrder(point=point)) + b"\n")
        except BrokenPipeError:
            self._child.join(PATIENCE)
            return
        self._see_obeyed(time.monotonic() + PATIENCE)

    def calls(self) -> tuple[str, ...]:
        """Return what the driver `libvirt` of an agent has called since this was asked before. Raises RoleDied."""
        assert self._orders is not None
        assert self._hearing is not None
        self._orders.write(msgspec.json.encode(ChildOrder(calls=True)) + b"\n")
        said = self._hearing.next(time.monotonic() + PATIENCE)
        if said is None or said.event != "calls":
            raise RoleDied(f"{self.order.name} does not obey; the end of its log:\n{self.tail()}")
        return said.calls

    def _see_obeyed(self, deadline: float) -> None:
        assert self._hearing is not None
        assert self._child is not None
        while True:
            said = self._hearing.next(deadline)
            if said is None or said.event == "dies":
                # What has said so, or hung up, is about to end: nobody shall take it for one that runs.
                self._child.join(PATIENCE)
                if self.running:
                    raise RoleDied(f"{self.order.name} does not obey; the end of its log:\n{self.tail()}")
                return
            if said.event == "started":
                self._started = True
            elif said.event == "armed":
                return

    def kill(self) -> None:
        """End the process at once, a paused one too."""
        self._signal(signal.SIGKILL)
        if self._child is not None:
            self._child.join()
            self._let_go()

    def pause(self) -> None:
        """Halt the process with everything that it holds."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a halted process go on; nothing happens to one that has ended."""
        self._signal(signal.SIGCONT)

    def limit_files(self, size: int | None) -> None:
        """Let no file that the process writes grow beyond `size` bytes; None lifts the limit."""
        if self._child is None or self._child.pid is None or not self.running:
            return
        _, hard = resource.prlimit(self._child.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._child.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))

    def stop(self) -> float:
        """End the process in good order and return how many seconds that took.

        Raises RoleDied when it does not, or says that it could not; nothing runs then.
        """
        if self._child is None or not self.running:
            self._let_go()
            return 0.0
        began = time.monotonic()
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        self._child.join(self._stop_seconds)
        if self.running:
            self.kill()
            raise RoleDied(f"{self.order.name} did not stop; the end of its log:\n{self.tail()}")
        self._let_go()
        if self.status != 0:
            raise RoleDied(f"{self.order.name} stopped with {self.status}; the end of its log:\n{self.tail()}")
        return time.monotonic() - began

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def _let_go(self) -> None:
        for pipe in (self._orders, self._said):
            if pipe is not None:
                pipe.close()
        self._orders = self._said = None
