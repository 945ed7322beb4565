"""Which databases an installation has, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skep.config.sections import Config
from skep.database.engine import Database
from skep.database.locations import Location, location_of
from skep.processes.directory import StateDirectory


@dataclass(frozen=True)
class Databases:
    """The API database, and the database of each cell by its name (`cell0` too)."""

    api: Database
    cells: Mapping[str, Database]

    async def close(self) -> None:
        """Finish what was submitted and disconnect."""
        for database in (*self.cells.values(), self.api):
            await database.close()


class Places:
    """Where databases are, by the configuration, and by what the rows of cells say."""

    def __init__(self, config: Config, directory: StateDirectory) -> None:
        self._base = Path(config.database.directory) if config.database.directory else directory.databases
        self._urls = {cell.name: cell.database_url for cell in config.cells}
        self._urls |= {"api": config.database.api_url, "cell0": config.database.cell0_url}

    @property
    def api(self) -> Location:
        """Where the API database is."""
        return self.of("api")

    def of(self, name: str, url: str = "") -> Location:
        """Return where the database of a cell is: where its row says so by `url`, there; `cell0`, `api` likewise.

        Raises Misconfigured for a URL of another kind of database.
        """
        return location_of(url or self._urls.get(name, ""), self._base / f"{name}.db")

    def files(self) -> tuple[str, ...]:
        """Return the names for which there is a file, whether anybody knows it or not."""
        return tuple(path.stem for path in sorted(self._base.glob("*.db")))

    def has_own(self, name: str) -> bool:
        """Tell whether the configuration says of a cell where its database is."""
        return bool(self._urls.get(name))
