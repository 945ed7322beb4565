"""A cloud of processes that does not run: the PostgreSQL that it has of its own is started for a copy or a restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from msgspec.structs import replace

from skep.config.sections import Config
from skep.database.locations import Location
from skep.processes.directory import InUse, StateDirectory
from skep.processes.supervisor.servers import LocalServers

Renew = Callable[[str, Location], Location]
"""Returns where a database is now, from its name and where it was."""


def own_servers(config: Config, directory: StateDirectory) -> LocalServers | None:
    """Return the servers that a cloud of processes has of its own, if the API database is in them.

    Raises Misconfigured when their passwords cannot be read.
    """
    if not directory.servers.is_dir() or not config.database.api_url:
        return None
    servers = LocalServers(directory.servers)
    return servers if servers.keeps(config.database.api_url) else None


@contextmanager
def held(config: Config, directory: StateDirectory) -> Iterator[tuple[Config, Renew]]:
    """Hold the directory for the length of a block, and have the databases of its cloud answer.

    Yields the configuration with where they are now. Blocks. Raises Misconfigured when a cloud runs, or its own
    PostgreSQL does not start.
    """
    servers = own_servers(config, directory)
    directory.open(passed=servers is not None and os.geteuid() == 0)
    try:
        if servers is None:
            yield config, _as_it_is
        else:
            with servers.databases():
                yield _renewed(config, servers), servers.renewed_location
    finally:
        directory.close()


@contextmanager
def answering(config: Config, directory: StateDirectory) -> Iterator[tuple[Config, Renew]]:
    """Have databases answer for the length of a block as `held` does; those of a cloud that runs answer by themselves.

    Nothing is held where no server has to be started. Raises Misconfigured as `held`, but for a cloud that runs.
    """
    with ExitStack() as stack:
        found: tuple[Config, Renew] = config, _as_it_is
        if own_servers(config, directory) is not None:
            with suppress(InUse):
                found = stack.enter_context(held(config, directory))
        yield found


def _as_it_is(_name: str, location: Location) -> Location:
    return location


def _renewed(config: Config, servers: LocalServers) -> Config:
    """Return the configuration with where the databases above the cells are now."""
    names = ("api_url", "cell0_url")
    urls = {name: servers.renewed_database_url(getattr(config.database, name)) for name in names}
    return replace(config, database=replace(config.database, **urls))
