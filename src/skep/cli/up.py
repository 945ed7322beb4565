"""`skep up`: the whole cloud in one process, with a first server built by the real client. And `skep serve`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.config import config_option
from skep.cli.failures import Refused

if TYPE_CHECKING:
    from skep.config import Config

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

ROLES = ("all-in-one", "api", "super-conductor", "scheduler", "cell-conductor", "compute")


@click.command()
@cells_option
@hosts_option
@click.option("--no-first-server", is_flag=True, help="Build no server at the first start.")
@config_option
def up(cells: int | None, hosts: int | None, no_first_server: bool, config_file: Path | None) -> None:
    """Start a whole cloud in this process and serve it until Ctrl-C.

    Everything is kept in the state directory (`.skep`); a second start finds it as it was left, guests too. The first
    start writes clouds.yaml there and builds a server `one` through the real `openstack` client.

    \b
    Example: skep up --cells 1 --hosts 5
    """
    _run(_load(config_file), cells=cells, hosts=hosts, first_server=not no_first_server)


@click.command()
@click.argument("role", type=click.Choice(ROLES))
@cells_option
@hosts_option
@config_option
def serve(role: str, cells: int | None, hosts: int | None, config_file: Path | None) -> None:
    """Run one role of an installation until it is told to stop. This release has one: all-in-one.

    \b
    Example: skep serve all-in-one
    """
    if role != "all-in-one":
        raise Refused(f"the role {role} cannot run alone yet: this release runs all roles in one process (all-in-one)")
    _run(_load(config_file), cells=cells, hosts=hosts, first_server=False)


def _load(config_file: Path | None) -> Config:
    from skep.config import load

    return load(config_file, os.environ).config


def _run(config: Config, *, cells: int | None, hosts: int | None, first_server: bool) -> None:
    import uvloop

    from skep.cli.greeting import greet
    from skep.cli.serving import serve as serve_until_told
    from skep.processes.all_in_one import make_cloud
    from skep.telemetry import logs

    logs.configure(config.log.level, config.log.format)
    cloud = make_cloud(config, cells=cells, hosts=hosts)
    uvloop.run(serve_until_told(cloud, partial(greet, cloud, first_server=first_server)))
