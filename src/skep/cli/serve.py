"""`skep serve`: one role of an installation, for a service manager."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused
from skep.cli.up import StartOptions, cells_option, cloud_of, hosts_option, ports_option

if TYPE_CHECKING:
    from skep.config import Config
    from skep.processes.role import Role

ALL_IN_ONE = "all-in-one"
ROLES = (ALL_IN_ONE, "api", "metadata", "super-conductor", "scheduler", "cell-conductor", "compute")


@click.command()
@click.argument("role", type=click.Choice(ROLES))
@click.option("--cell", help="cell-conductor: the name of its cell.")
@click.option("--host", help="compute: the name of the host (`compute.host`, or the machine's).")
@click.option(
    "--health-port", type=click.IntRange(0, 65535), help="Port of /healthz, /readyz and /metrics, as configured."
)
@cells_option
@hosts_option
@ports_option
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the log there, as JSON lines, instead of to standard error; past 64 MiB it moves to FILE.1.",
)
@click.option("--parent", type=int, hidden=True, help="End with this process, the parent.")
@config_option
def serve(
    role: str,
    cell: str | None,
    host: str | None,
    health_port: int | None,
    cells: int | None,
    hosts: int | None,
    free_ports: bool,
    log_file: Path | None,
    parent: int | None,
    config_file: Path | None,
) -> None:
    """Run one role of an installation until it is told to stop.

    all-in-one is the whole cloud in one process. Every other role runs alone, any number of each, from the same
    configuration file: they meet over NATS and share databases. A role waits for what it needs; /readyz says what.

    \b
    Example: skep serve all-in-one
             skep serve api --config skep.toml
             skep serve metadata --config skep.toml
             skep serve cell-conductor --cell cell1 --config skep.toml
             skep serve compute --host node17 --config skep.toml
    """
    options = StartOptions(cells, hosts, free_ports)
    if role == ALL_IN_ONE:
        _refuse(role, cell=cell, host=host, health_port=health_port)
        _serve_cloud(config_file, options, log_file)
        return
    if options != StartOptions(None, None, False):
        raise CommandRefused(f"--cells, --hosts and --free-ports are for a whole cloud, not for {role}")
    if role != "cell-conductor":
        _refuse(role, cell=cell)
    elif cell is None:
        raise CommandRefused("a cell-conductor needs --cell NAME")
    if role != "compute":
        _refuse(role, host=host)
    if role == "api":
        _refuse(role, health_port=health_port)
    if parent is not None:
        from skep.processes.supervisor.orphans import end_with

        end_with(parent)
    _serve_role(role, config_file, cell=cell or "", host=host or "", health_port=health_port, log_file=log_file)


def _refuse(role: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise CommandRefused(f"--{name.replace('_', '-')} is not for {role}")


def _serve_cloud(config_file: Path | None, options: StartOptions, log_file: Path | None) -> None:
    import uvloop

    from skep.cli.greeting import warn
    from skep.cli.serving import serve as serve_until_told
    from skep.cli.serving import trace

    config, cloud = cloud_of(config_file, options)
    cloud.upgrade = False
    _log(config, log_file)
    trace(config, ALL_IN_ONE)

    async def say_what_differs() -> None:
        warn(cloud)

    uvloop.run(serve_until_told(cloud, say_what_differs, config.process.drain_seconds))


def _log(config: Config, file: Path | None) -> None:
    """Set up logging: into a file, with all that this process writes otherwise, or to standard error."""
    from skep.telemetry import logs
    from skep.telemetry.log_file import LogFile

    if file is None:
        logs.configure(config.log.level, config.log.format)
    else:
        logs.configure(config.log.level, config.log.format, file=LogFile(file, descriptors=(1, 2)), file_only=True)


def _serve_role(
    role: str, config_file: Path | None, *, cell: str, host: str, health_port: int | None, log_file: Path | None
) -> None:
    import uvloop

    from skep.cli.serving import nothing_to_say, trace
    from skep.cli.serving import serve as serve_until_told
    from skep.config import load

    config = load(config_file, os.environ).config
    if health_port is not None:
        config = _with_health_port(config, role, health_port)
    _log(config, log_file)
    trace(config, role)

    # A role makes parts that belong to the loop they are made in.
    async def made() -> None:
        await serve_until_told(_role(role, config, cell, host), nothing_to_say, config.process.drain_seconds)

    uvloop.run(made())


def _role(role: str, config: Config, cell: str, host: str) -> Role:
    """Return a role that has not started. Raises Misconfigured when the configuration does not go with it."""
    from skep.processes.process import new_process

    process = new_process(config)
    if role == "api":
        from skep.processes.api import ApiProcess

        return ApiProcess(process)
    if role == "metadata":
        from skep.processes.metadata import MetadataProcess

        return MetadataProcess(process)
    if role == "super-conductor":
        from skep.processes.super_conductor import SuperConductorProcess

        return SuperConductorProcess(process)
    if role == "cell-conductor":
        from skep.processes.cell_conductor import CellConductorProcess

        return CellConductorProcess(process, cell)
    if role == "compute":
        from skep.processes.compute import ComputeProcess

        return ComputeProcess(process, host)
    from skep.processes.scheduler import SchedulerProcess

    return SchedulerProcess(config, process=process)


def _with_health_port(config: Config, role: str, port: int) -> Config:
    if role == "metadata":
        return replace(config, metadata=replace(config.metadata, health_port=port))
    if role == "scheduler":
        return replace(config, scheduler=replace(config.scheduler, health_port=port))
    if role == "compute":
        return replace(config, compute=replace(config.compute, health_port=port))
    setting = "super_conductor_health_port" if role == "super-conductor" else "cell_conductor_health_port"
    return replace(config, conductor=replace(config.conductor, **{setting: port}))
