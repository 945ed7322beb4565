"""One child process that is kept alive: started, started again when it dies, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skep.telemetry.logs import get_logger

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds before a child that died is started again: twice as long each time."""
SETTLED_SECONDS = 30.0
"""A child that lived so long begins with the first pause again."""
KILL_SECONDS = 5.0
"""How much longer than its own limit a child may take to stop until it is killed."""

log = get_logger(__name__)


@dataclass(frozen=True)
class ChildTask:
    """What one child does."""

    name: str
    """`api-1`, `compute-cell1-host2`: names its log too."""
    role: str
    arguments: tuple[str, ...] = ()
    """Of `skep serve ROLE`."""
    settings: tuple[tuple[str, str], ...] = ()
    """Variables of its environment."""
    cell: str = ""
    """The name of the cell that it is part of; empty above the cells."""
    within: tuple[str, ...] = ()
    """The words before its command: where it runs."""


class Child:
    """Runs `skep serve` for an order, with the log `LOGS/NAME.log`, until it is stopped."""

    def __init__(self, order: ChildTask, environment: Mapping[str, str], logs: Path, drain_seconds: float) -> None:
        self.order = order
        self.log = logs / f"{order.name}.log"
        self.starts = 0
        self._environment = {**environment, **dict(order.settings)}
        self._patience = drain_seconds + KILL_SECONDS
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process, None while none runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def start(self) -> None:
        """Keep the child running from now on."""
        self._task = asyncio.create_task(self._keep(), name=f"child {self.order.name}")

    async def stop(self) -> None:
        """Tell the child to stop and wait; one that does not is killed."""
        self._stopping.set()
        if self._task is None:
            return
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._task), self._patience)
        except TimeoutError:
            log.warning("child killed", child=self.order.name)
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
            await self._task

    def tail(self, lines: int = 5) -> str:
        """Return the end of the child's log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            try:
                status = await self._run()
            except OSError:
                # Out of memory, processes or files, perhaps for a moment: the child is not given up for that.
                log.exception("child not started", child=self.order.name)
                status = -1
            if self._stopping.is_set():
                return
            pause = FIRST_PAUSE if loop.time() - began > SETTLED_SECONDS else pause
            log.warning("child ended, to be started again", child=self.order.name, status=status, pause=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run(self) -> int:
        """Run the child once; return its status."""
        words = ("-m", "skep.cli", "serve", self.order.role, *self.order.arguments)
        command = [*self.order.within, sys.executable, *words]
        self.starts += 1
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:  # for what it says before it can log, as of a setting that is wrong
            self._process = await asyncio.create_subprocess_exec(
                *command,
                "--log-file",
                str(self.log),
                "--parent",
                str(os.getpid()),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A Ctrl-C on the terminal is ours; children are stopped in order.
                start_new_session=True,
            )
        if self._stopping.is_set():
            self._process.terminate()
        return await self._process.wait()
