"""What befalls a whole cloud of one process beside its deaths: it halts, its databases are locked, hosts are evacuated.

    faults = FaultsBeside(process, dice, wait)
    await faults.do("halted")

Each is undone when it returns, whether or not the process that it befell still lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial

from skep_lab.crash.evacuating import Operator
from skep_lab.crash.process import CrashProcess

HALTED_SECONDS = (0.3, 4.0)
"""Leases last for 1 or 2 s in these clouds."""
LOCKED_SECONDS = (0.2, 3.0)
"""Shorter than the cloud waits for a lock: what is longer has tests of its own."""
PATIENCE_SECONDS = 5.0
"""How long we wait for a lock ourselves."""

DOWN_SECONDS = (0.5, 4.0)

Wait = Callable[[float], Awaitable[None]]


class FaultsBeside:
    """Does faults to the process of one cloud. All chances come from `dice`; `wait` passes the time of a fault."""

    def __init__(
        self, process: CrashProcess, dice: random.Random, wait: Wait, operator: Operator | None = None
    ) -> None:
        """Without an `operator` no host is evacuated. No life of the process ends or begins in `operator.turn`."""
        self._process = process
        self._dice = dice
        self._wait = wait
        self._locked: set[str] = set()
        self.kinds: dict[str, Callable[[], Awaitable[bool]]] = {
            "halted": self.halt,
            "locked": self.lock,
        }
        if operator is not None:
            self.kinds["living host evacuated"] = partial(self.evacuate, operator, lost=False)
            self.kinds["lost host evacuated"] = partial(self.evacuate, operator, lost=True)

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

    async def evacuate(self, operator: Operator, *, lost: bool) -> bool:
        """Say that a host is down, which goes on or has lost its power, and evacuate its servers, or some of them."""
        if operator.down:
            return False
        cell, number = self._dice.randint(1, self._process.cells), self._dice.randint(1, self._process.hosts)
        host = f"cell{cell}-host{number}"
        operator.down.add(host)
        try:
            if lost:
                await self._told(operator, self._process.lose, host)
            done = await operator.say(host, down=True)
            if done:
                await operator.evacuate(host, self._dice.choice((1.0, 0.5)))
                await self._wait(self._dice.uniform(*DOWN_SECONDS))
        finally:
            if lost:
                await self._told(operator, self._process.back, host)
            await operator.say_up(host)
        await operator.start_again()
        return done

    async def _told(self, operator: Operator, tell: Callable[[str], None], host: str) -> None:
        """Tell the process, unless it dies: with its next life the host is there."""
        async with operator.turn:
            with contextlib.suppress(AssertionError, OSError, ValueError):
                await asyncio.to_thread(tell, host)

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
