"""`skep serve`: one role of an installation, for a service manager."""

from __future__ import annotations

import os
from pathlib import Path

import click

from skep.cli.config import config_option
from skep.cli.failures import Refused
from skep.cli.up import Asked, cells_option, cloud_of, hosts_option, ports_option

ROLES = ("all-in-one", "api", "super-conductor", "scheduler", "cell-conductor", "compute")


@click.command()
@click.argument("role", type=click.Choice(ROLES))
@cells_option
@hosts_option
@ports_option
@config_option
def serve(role: str, cells: int | None, hosts: int | None, free_ports: bool, config_file: Path | None) -> None:
    """Run one role of an installation until it is told to stop.

    all-in-one is the whole cloud; scheduler is one more scheduler, from the same configuration file. This release runs
    no other role alone.

    \b
    Example: skep serve all-in-one
             skep serve scheduler --config skep.toml
    """
    asked = Asked(cells, hosts, free_ports)
    if role == "all-in-one":
        _serve_cloud(config_file, asked)
    elif role != "scheduler":
        raise Refused(f"the role {role} cannot run alone yet: this release has all-in-one and scheduler")
    elif asked != Asked(None, None, False):
        raise Refused("--cells, --hosts and --free-ports are for a whole cloud: a scheduler has none of them")
    else:
        _serve_scheduler(config_file)


def _serve_cloud(config_file: Path | None, asked: Asked) -> None:
    import uvloop

    from skep.cli.greeting import warn
    from skep.cli.serving import serve as serve_until_told
    from skep.telemetry import logs

    config, cloud = cloud_of(config_file, asked)
    logs.configure(config.log.level, config.log.format)

    async def say_what_differs() -> None:
        warn(cloud)

    uvloop.run(serve_until_told(cloud, say_what_differs))


def _serve_scheduler(config_file: Path | None) -> None:
    import uvloop

    from skep.cli.serving import nothing_to_say
    from skep.cli.serving import serve as serve_until_told
    from skep.config import load
    from skep.processes.scheduler import SchedulerProcess
    from skep.telemetry import logs

    config = load(config_file, os.environ).config
    logs.configure(config.log.level, config.log.format)

    async def run() -> None:
        await serve_until_told(SchedulerProcess(config), nothing_to_say)

    uvloop.run(run())
