"""`skep up`: the whole cloud in one process, with a first server built by the real client."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from skep.cli.config import config_option

if TYPE_CHECKING:
    from skep.config import Config
    from skep.processes.all_in_one import Cloud

cells_option = click.option(
    "--cells",
    type=click.IntRange(1, 100),
    help="Cells of a new installation (2), unless configured; one that has fewer gets more, never less.",
)
hosts_option = click.option(
    "--hosts",
    type=click.IntRange(1, 10_000),
    help="Fake hosts of each new cell ([compute.fake] hosts); one that has fewer gets more, never less.",
)

ports_option = click.option(
    "--free-ports", is_flag=True, help="Take free ports, whatever is configured: for a second cloud beside the first."
)


class Asked(NamedTuple):
    """What a start is asked for beside its configuration."""

    cells: int | None
    hosts: int | None
    free_ports: bool


@click.command()
@cells_option
@hosts_option
@ports_option
@click.option("--no-first-server", is_flag=True, help="Build no server at the first start.")
@click.option("--verbose", is_flag=True, help="Log from the beginning, not only once the greeting is said.")
@config_option
def up(
    cells: int | None,
    hosts: int | None,
    free_ports: bool,
    no_first_server: bool,
    verbose: bool,
    config_file: Path | None,
) -> None:
    """Start a whole cloud in this process and serve it until Ctrl-C.

    Everything is kept in the state directory (`.skep`); a second start finds it as it was left, guests too. The first
    start writes clouds.yaml there and builds a server `one` through the real `openstack` client.

    \b
    Example: skep up --cells 1 --hosts 5
    """
    from skep.cli.greeting import greet
    from skep.telemetry import logs

    config, cloud = cloud_of(config_file, Asked(cells, hosts, free_ports))
    output = logs.configure(config.log.level, config.log.format)
    if not verbose and config.log.level != "debug":
        output.hold()

    async def say_hello() -> None:
        await greet(cloud, first_server=not no_first_server)
        # On a terminal the lines of the start would push away what was just said, which tells the same.
        output.release(write=not sys.stderr.isatty())

    try:
        _serve(cloud, say_hello)
    finally:
        output.release(write=True)


def cloud_of(config_file: Path | None, asked: Asked) -> tuple[Config, Cloud]:
    """Return the configuration and a cloud that has not started."""
    from skep.config import load
    from skep.processes.all_in_one import make_cloud

    loaded = load(config_file, os.environ)
    config = loaded.config
    if asked.free_ports:
        sections = {name: replace(getattr(config, name), port=0) for name in ("api", "identity", "images")}
        config = replace(config, **sections)
    hosts = asked.hosts
    if hosts is None and "compute.fake.hosts" in loaded.sources:
        hosts = config.compute.fake.hosts
    return config, make_cloud(config, cells=asked.cells, hosts=hosts)


def _serve(cloud: Cloud, greet: Callable[[], Awaitable[None]]) -> None:
    import uvloop

    from skep.cli.serving import serve as serve_until_told

    uvloop.run(serve_until_told(cloud, greet))
