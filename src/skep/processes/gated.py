"""A database that is let be until somebody has seen that it is there, fits, and belongs to whom it should."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from skep.database.engine import Database, Unit
from skep.database.locations import Location
from skep.domain.errors import StorageUnavailable

T = TypeVar("T")


class GatedDatabase(Database):
    """Refuses everybody with a reason until it is admitted, so that none is made by asking for it."""

    def __init__(self, location: Location | None, name: str, trouble: str) -> None:
        """Without a location it is never admitted."""
        super().__init__(location if location is not None else Path(os.devnull), name=name, short_reads=True)
        self._trouble: str | None = trouble

    @property
    def trouble(self) -> str | None:
        """Why it is refused; None once it is admitted."""
        return self._trouble

    @property
    def answers(self) -> bool:
        """Whether it is admitted, and answered the last time."""
        return self._trouble is None and super().answers

    def admit(self) -> None:
        """Let everybody in."""
        self._trouble = None

    def refuse(self, trouble: str) -> bool:
        """Let nobody in, saying why; tell whether that is news."""
        news = self._trouble != trouble
        self._trouble = trouble
        return news

    async def claim(self, unit: Unit[T]) -> T:
        """Write before it is admitted. Raises StorageUnavailable."""
        return await super().write(unit)

    async def read(self, unit: Unit[T], *, within: float | None = None) -> T:
        """Read as `Database.read` does; raises StorageUnavailable until it is admitted."""
        self._see_admitted()
        return await super().read(unit, within=within)

    async def write(self, unit: Unit[T], *, intake: bool = False, within: float | None = None) -> T:
        """Write as `Database.write` does; raises StorageUnavailable until it is admitted."""
        self._see_admitted()
        return await super().write(unit, intake=intake, within=within)

    def _see_admitted(self) -> None:
        if self._trouble is not None:
            raise StorageUnavailable(f"cell {self.name} cannot be reached: {self._trouble}")
