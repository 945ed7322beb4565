"""Keeps the synchronizer's SQL backend out of the installation's own databases."""

from __future__ import annotations

from pathlib import Path

from skep.config.sections import Config
from skep.database.locations import is_same, location_of
from skep.domain.errors import Misconfigured
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory


def refuse_own_databases(config: Config) -> None:
    """Refuse to keep host states in the database of the API or of a cell, as far as the configuration places those.

    Host states are a cache that may be dropped at any time; what stands beside them may not. Raises Misconfigured.
    """
    places = Places(config, StateDirectory(Path(config.state.directory)))
    settings = {"api": "database.api_url", "cell0": "database.cell0_url"}
    settings |= {cell.name: f"database_url of cell {cell.name}" for cell in config.cells}
    own = location_of(config.synchronizer.url, Path())
    for name, setting in settings.items():
        if is_same(places.of(name), own):
            raise Misconfigured(f"synchronizer.url: expected a database of its own, got the database of {setting}")
