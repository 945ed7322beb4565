"""Opens databases for a role: one that is away is waited for, one that does not fit is refused. None is made here."""

from __future__ import annotations

from pathlib import Path

from skep.config.sections import Config
from skep.database import opening
from skep.database.engine import Database
from skep.processes.cells import LiveCells, own_transports
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.telemetry.metrics import Metrics
from skep.transport.base import Transport


async def open_database(config: Config, name: str) -> Database:
    """Open a database that the configuration names: `api`, or a cell's.

    Raises StorageUnavailable when it does not answer now, Misconfigured when it or its schema is missing or old.
    """
    location = Places(config, StateDirectory(Path(config.state.directory))).of(name)
    return await opening.open_database(name, location, upgrade=False)


async def open_cells(config: Config, metrics: Metrics, api: Database, transport: Transport, name: str) -> LiveCells:
    """Begin to follow the cells of the API database; those that cannot be opened now join later.

    `name` is what NATS' monitoring calls this process. Raises StorageUnavailable when the API database cannot be read.
    """
    directory = StateDirectory(Path(config.state.directory))
    make_transport = own_transports(config, metrics, name)
    cells = LiveCells(api, Places(config, directory), directory, transport, make_transport=make_transport)
    try:
        await cells.start()
    except BaseException:
        await cells.close()
        raise
    return cells
