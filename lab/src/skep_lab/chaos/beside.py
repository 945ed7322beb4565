"""What befalls a whole cloud of one process beside its deaths: it halts, and its databases are locked by others.

    faults = FaultsBeside(process, dice, wait)
    await faults.do("halted")

Each is undone when it returns, whether or not the process that it befell still lives.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing

from skep_lab.crash.process import CrashProcess

HALTED_SECONDS = (0.3, 4.0)
"""Leases last for 1 or 2 s in these clouds."""
LOCKED_SECONDS = (0.2, 3.0)
"""Shorter than the cloud waits for a lock: what is longer has tests of its own."""
PATIENCE_SECONDS = 5.0
"""How long we wait for a lock ourselves."""

Wait = Callable[[float], Awaitable[None]]


class FaultsBeside:
    """Does faults to the process of one cloud. All chances come from `dice`; `wait` passes the time of a fault."""

    def __init__(self, process: CrashProcess, dice: random.Random, wait: Wait) -> None:
        self._process = process
        self._dice = dice
        self._wait = wait
        self._locked: set[str] = set()
        self.kinds: dict[str, Callable[[], Awaitable[bool]]] = {"halted": self.halt, "locked": self.lock}

    async def do(self, kind: str) -> bool:
        """Do one fault and undo it; false when there was nothing to befall. Raises KeyError for no such kind."""
        return await self.kinds[kind]()

    async def halt(self) -> bool:
        """Halt the process with all that it holds, for longer than its leases last or not."""
        resume = self._process.halt()
        if resume is None:
            return False
        try:
            await self._wait(self._dice.uniform(*HALTED_SECONDS))
        finally:
            resume()
        return True

    async def lock(self) -> bool:
        """Keep one database from being written, as a copy or a person with a shell does."""
        free = sorted(path for path in self._process.state.glob("db/*.db") if path.name not in self._locked)
        if not free:
            return False
        path = self._dice.choice(free)
        self._locked.add(path.name)
        try:
            return await self._hold(str(path), self._dice.uniform(*LOCKED_SECONDS))
        finally:
            self._locked.discard(path.name)

    async def _hold(self, path: str, seconds: float) -> bool:
        """Lock a database; false where its process has halted in a write of its own, and so locks it for longer."""
        with closing(
            sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
        ) as held:
            try:
                await asyncio.to_thread(held.execute, "BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            try:
                await self._wait(seconds)
            finally:
                held.execute("ROLLBACK")
        return True
