"""Where the databases of an installation are, and which schemas they have: what the commands on them share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skep.cli.installed import load_installed

if TYPE_CHECKING:
    from skep.config import Config
    from skep.database.locations import Location
    from skep.database.schema import Kind
    from skep.processes.directory import StateDirectory


def loaded(file: Path | None) -> Config:
    """Return the configuration of the installation that a file, the environment and its directory tell of.

    Raises Misconfigured.
    """
    return load_installed(file).config


def state_directory(config: Config) -> StateDirectory:
    """Return the directory in which an installation keeps its state."""
    from skep.processes.directory import StateDirectory

    return StateDirectory(Path(config.state.directory))


def locations(config: Config) -> tuple[dict[str, Location], set[str]]:
    """Return where each database is: those above, of the cells that are known or configured, or whose file is there;
    and the names of the cells that are known.

    Raises Misconfigured, or StorageUnavailable when the API database cannot be reached now.
    """
    from skep.processes.databases import Places
    from skep.processes.installation import known_cells

    directory = state_directory(config)
    places = Places(config, directory)
    known = known_cells(places, directory)
    names = {cell.name for cell in config.cells} | ({*places.files()} if not config.cells else set())
    found = {name: places.of(name) for name in ("api", "cell0", *sorted(names - {"api", "cell0"}))}
    return found | {name: one.location for name, one in known.items()}, {*known}


def see_all_there(config: Config) -> None:
    """See that no database is missing that the installation has. Raises Misconfigured naming it and what to do."""
    from skep.processes.installation import refuse_missing

    refuse_missing(*locations(config))


def revisions(config: Config) -> Iterator[dict[str, Any]]:
    """Return each database with the revision of its schema (None: it is not there, or cannot be reached), this
    release's, and whether this release can work with it.
    """
    from skep.database import schema
    from skep.database.locations import shown
    from skep.database.opening import revision_of
    from skep.domain.errors import StorageUnavailable

    for name, location in locations(config)[0].items():
        kind: Kind = "api" if name == "api" else "cell"
        row = {"database": name, "newest": schema.head(kind), "file": shown(location), "fits": False}
        try:
            row["revision"] = revision_of(location)
        except StorageUnavailable as error:
            row |= {"revision": None, "error": str(error)}
        if row["revision"] is not None:
            row["fits"] = fits(location, kind)
        yield row


def fits(location: Location, kind: Kind) -> bool:
    """Tell whether this release can work with a database that is there."""
    from skep.database import schema
    from skep.database.opening import bare_engine

    engine = bare_engine(location)
    try:
        return schema.is_fit(engine, kind)
    finally:
        engine.dispose()
