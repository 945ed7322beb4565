"""A database that hangs at will: what is asked of it waits until it is let go, as behind a halted server."""

from __future__ import annotations

import asyncio

from skep.database.circuit import Circuit
from skep.database.engine import Database, T, Unit


class HangingDatabase(Database):
    """Stands before a real one. Has circuits of its own, so that waiting for it is bounded as it is for any other."""

    def __init__(self, real: Database, *, hangs: bool = True) -> None:
        self.real, self.name = real, real.name
        self.reached = asyncio.Event()
        """Somebody asks and waits."""
        self.go_on = asyncio.Event()
        self.asked = 0
        """How often it was asked for something, probes too."""
        self.reading = Circuit(self.name, lambda: self.read(_nothing), patience=5.0, cut_off=_nobody)
        self.writing = Circuit(self.name, lambda: self.write(_nothing), patience=5.0, cut_off=_nobody)
        if not hangs:
            self.go_on.set()

    async def read(self, unit: Unit[T], *, within: float | None = None) -> T:
        """Read once it is let go."""
        if within is not None:
            return await self.reading.through(lambda: self.read(unit), within)
        await self._wait()
        return await self.real.read(unit)

    async def write(self, unit: Unit[T], *, intake: bool = False, within: float | None = None) -> T:
        """Write once it is let go."""
        if within is not None:
            return await self.writing.through(lambda: self.write(unit, intake=intake), within)
        await self._wait()
        return await self.real.write(unit, intake=intake)

    async def close(self) -> None:
        """Stop probing and close the real one."""
        await self.reading.close()
        await self.writing.close()
        await self.real.close()

    async def _wait(self) -> None:
        self.asked += 1
        self.reached.set()
        await self.go_on.wait()


def _nobody() -> None:
    """Nobody can be cut off: what waits here holds no connection."""


def _nothing(_connection: object) -> None:
    return None
