"""`skep up`: a whole cloud, in one process or in many, with a first server built by the real client."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click
from msgspec.structs import replace

from skep.cli.config import config_option

if TYPE_CHECKING:
    from skep.cli.greeting import Served
    from skep.cli.serving import Running
    from skep.config import Config
    from skep.processes.all_in_one import AllInOneCloud
    from skep.processes.supervisor.cloud import SupervisedCloud
    from skep.processes.supervisor.plan import ProcessNumbers

    class Whole(Running, Served, Protocol):
        """A cloud that is started, greeted and stopped."""


LIBVIRT = "libvirt"

cells_option = click.option(
    "--cells",
    type=click.IntRange(1, 100),
    help="Cells of a new installation (2), unless configured; an existing one gets more, never fewer.",
)
hosts_option = click.option(
    "--hosts",
    type=click.IntRange(1, 10_000),
    help="Fake hosts of each new cell ([compute.fake] hosts); an existing one gets more, never fewer.",
)

ports_option = click.option(
    "--free-ports",
    is_flag=True,
    help="Use free ports instead of the configured ones: for a second cloud on this machine.",
)


processes_option = click.option(
    "--processes",
    is_flag=True,
    help="Run each role in its own processes; start NATS and PostgreSQL for them.",
)


driver_option = click.option(
    "--driver",
    type=click.Choice(["fake", LIBVIRT]),
    help="Driver of all hosts, in place of the configured one, or else of the one that they had before. With `libvirt` "
    "guests are virtual machines of QEMU, one host for each new cell; needs --processes.",
)


def number_option(role: str, default: int, what: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the option for the number of processes of a role."""
    return click.option(
        f"--{role}s", type=click.IntRange(1, 50), default=default, show_default=True, help=f"With --processes: {what}."
    )


class StartOptions(NamedTuple):
    """The options of a start that come beside its configuration."""

    cells: int | None
    hosts: int | None
    free_ports: bool
    driver: str | None = None


@click.command()
@cells_option
@hosts_option
@ports_option
@processes_option
@driver_option
@number_option("api", 1, "API processes; the first has the configured ports, the others free ones")
@number_option("super-conductor", 1, "super conductors")
@number_option("scheduler", 2, "schedulers")
@number_option("cell-conductor", 1, "conductors of each cell")
@click.option("--no-first-server", is_flag=True, help="Build no server at the first start.")
@click.option("--log", "show_log", is_flag=True, help="Show every log line on the terminal; else warnings only.")
@click.option("--verbose", is_flag=True, help="As --log, but from the start instead of after the greeting.")
@config_option
def up(
    cells: int | None,
    hosts: int | None,
    free_ports: bool,
    processes: bool,
    driver: str | None,
    apis: int,
    super_conductors: int,
    schedulers: int,
    cell_conductors: int,
    no_first_server: bool,
    show_log: bool,
    verbose: bool,
    config_file: Path | None,
) -> None:
    """Start a whole cloud, in this process or with --processes in many, and serve it until Ctrl-C.

    The state directory (`.skep`) keeps all data, guests included, for the next start. The first start writes
    clouds.yaml there and builds a server `one` through the `openstack` client.

    The log is in `logs/` of the state directory; `skep request REQUEST-ID` finds the lines of one request. The
    terminal shows the greeting, then warnings only.

    \b
    Examples: skep up --cells 1 --hosts 5
              skep up --processes --apis 2
              skep up --processes --driver libvirt
    """
    from skep.cli.greeting import greet
    from skep.cli.serving import trace
    from skep.telemetry import logs
    from skep.telemetry.log_file import LogFile

    options = StartOptions(cells, hosts, free_ports, driver)
    cloud: Whole
    if processes:
        from skep.processes.supervisor.plan import ProcessNumbers

        numbers = ProcessNumbers(apis, super_conductors, schedulers, cell_conductors)
        config, cloud = processes_of(config_file, options, numbers)
    else:
        config, cloud = cloud_of(config_file, options)
        trace(config, "all-in-one")
    file = LogFile(Path(config.state.directory) / "logs" / f"{'supervisor' if processes else 'all-in-one'}.log")
    quiet = sys.stderr.isatty() and not (show_log or verbose)
    output = logs.configure(config.log.level, config.log.format, file=file, warnings_only=quiet)
    if not verbose and config.log.level != "debug":
        output.hold()

    logs_in = processes and config.compute.driver == LIBVIRT

    async def say_hello() -> None:
        await greet(cloud, first_server=not no_first_server, logs_in=logs_in)
        # On a terminal the lines of the start would push away what was just said, which tells the same.
        output.release(write=not sys.stderr.isatty())

    if logs_in and not (config.images.first_image or cloud.clouds_yaml.exists()):
        click.echo("Making the image of the first server, of Debian's packages: half a minute.", err=True)
    try:
        _serve(cloud, say_hello, config)
    finally:
        output.release(write=True)


def cloud_of(config_file: Path | None, options: StartOptions) -> tuple[Config, AllInOneCloud]:
    """Return the configuration and a cloud of one process that has not started."""
    from skep.processes.all_in_one import make_cloud

    config, hosts = _read(config_file, options, alone=True)
    return config, make_cloud(config, cells=options.cells, hosts=hosts)


def processes_of(
    config_file: Path | None, options: StartOptions, numbers: ProcessNumbers
) -> tuple[Config, SupervisedCloud]:
    """Return the configuration and a cloud of many processes that has not started."""
    from skep.processes.supervisor.cloud import SupervisedCloud

    config, hosts = _read(config_file, options, alone=False)
    return config, SupervisedCloud(config, numbers, cells=options.cells, hosts=hosts, config_file=config_file)


def _read(config_file: Path | None, options: StartOptions, *, alone: bool) -> tuple[Config, int | None]:
    """Return the configuration, and how many fake hosts each cell is asked to have; `alone`: of a single process."""
    from skep.config import load
    from skep.processes.directory import driver_of_hosts

    loaded = load(config_file, os.environ)
    config = loaded.config
    if options.free_ports:
        sections = {
            name: replace(getattr(config, name), port=0)
            for name in ("api", "identity", "images", "networks", "metadata")
        }
        config = replace(config, **sections)
    driver = options.driver
    if driver is None and "compute.driver" not in loaded.sources:
        driver = driver_of_hosts(Path(config.state.directory))
    if driver == LIBVIRT and alone:
        whose = (
            "--driver libvirt" if options.driver else f"libvirt, the driver of the hosts in {config.state.directory},"
        )
        raise click.UsageError(f"{whose} needs --processes: each of its hosts is a process of its own")
    if driver is not None:
        config = replace(config, compute=replace(config.compute, driver=driver))
    hosts = options.hosts
    if hosts is None and "compute.fake.hosts" in loaded.sources:
        hosts = config.compute.fake.hosts
    return config, hosts


def _serve(cloud: Whole, greet: Callable[[], Awaitable[None]], config: Config) -> None:
    import uvloop

    from skep.cli.serving import serve as serve_until_told

    uvloop.run(serve_until_told(cloud, greet, config.process.drain_seconds))
