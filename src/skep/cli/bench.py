"""`skep bench`: how fast it is, measured on this machine.

Each command imports its benchmark when it runs: what the others need would be measured with it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, TaskID

from skep.cli.benchmarks.scheduler.names import NAMES
from skep.cli.output import Format, format_option, print_record

if TYPE_CHECKING:
    from skep.cli.benchmarks.process import Deployment


GUESTS = 10
"""Virtual machines that are built one after the other unless it is said."""
OF_FAKE_HOSTS = {"concurrency", "hosts", "cells", "deployment", "rate", "multi", "ports"}
"""Options of `skep bench build` that say nothing of virtual machines."""


def _show(figures: msgspec.Struct, form: Format) -> None:
    if form == "json":
        click.echo(msgspec.json.encode(figures).decode())
        return
    print_record(msgspec.structs.asdict(figures), form)


@click.group()
def bench() -> None:
    """Measure Skep on this machine."""


@bench.command()
@click.option("--servers", type=click.IntRange(1, 100_000), default=2000, show_default=True, help="Servers to create.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=32, show_default=True, help="Creates at once.")
@click.option("--hosts", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Fake hosts in all.")
@click.option("--cells", type=click.IntRange(1, 100), default=2, show_default=True, help="Cells.")
@click.option(
    "--deployment",
    type=click.Choice(["all-in-one", "processes"]),
    default="all-in-one",
    show_default=True,
    help="One process over SQLite, or one for each role and host over PostgreSQL and NATS, which are counted too.",
)
@click.option("--rate", type=click.FloatRange(0, 10_000), default=0, help="Offer so many creates a second instead.")
@click.option("--multi", is_flag=True, help="Ask for all servers in one request instead.")
@click.option(
    "--ports",
    type=click.IntRange(0, 10),
    default=0,
    show_default=True,
    help="Ports of each server, each on a network of Skep's own network service; 0: a cloud without networks.",
)
@click.option(
    "--driver",
    type=click.Choice(["fake", "libvirt"]),
    default="fake",
    show_default=True,
    help="With `libvirt` guests are virtual machines of QEMU in software, one after the other on one host of a cloud "
    "of many processes; of the other options only --servers counts (10 unless it is given).",
)
@format_option
def build(
    servers: int,
    concurrency: int,
    hosts: int,
    cells: int,
    deployment: Deployment,
    rate: float,
    multi: bool,
    ports: int,
    driver: str,
    form: Format,
) -> None:
    """Create servers over HTTP in a cloud of its own and wait until all are ACTIVE.

    Databases are on disk with full durability; tokens, policy, quota, logs and metrics are on; fake hosts take no time.

    \b
    Example: skep bench build --servers 500 --hosts 50
             skep bench build --deployment processes --hosts 20
             skep bench build --rate 100
             skep bench build --multi --servers 1000
             skep bench build --ports 2
             skep bench build --driver libvirt
    """
    if driver == "libvirt":
        _build_guests(servers, form)
        return
    from skep.cli.benchmarks.build import run
    from skep.cli.benchmarks.build_load import Offered

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        offered = Offered(servers=servers, concurrency=concurrency, rate=rate, together=multi, ports=ports)
        figures = run(deployment=deployment, offered=offered, hosts=hosts, cells=cells, progress=progress)
    _show(figures, form)
    sys.exit(1 if figures.stuck or figures.leftover_rows or figures.errors else 0)


def _build_guests(servers: int, form: Format) -> None:
    from skep.cli.benchmarks.guests import run

    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    unused = sorted(given & OF_FAKE_HOSTS)
    if unused:
        raise click.UsageError(f"--{unused[0]}: with --driver libvirt only --servers counts")
    guests = servers if "servers" in given else GUESTS
    _show(run(guests=guests, progress=lambda what: click.echo(what, err=True)), form)


@bench.command()
@click.option("--servers", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Servers to act on.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=32, show_default=True, help="Requests at once.")
@click.option("--hosts", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Fake hosts in all.")
@click.option("--cells", type=click.IntRange(1, 100), default=2, show_default=True, help="Cells.")
@click.option(
    "--deployment",
    type=click.Choice(["all-in-one", "processes"]),
    default="all-in-one",
    show_default=True,
    help="As of `skep bench build`.",
)
@format_option
def actions(servers: int, concurrency: int, hosts: int, cells: int, deployment: Deployment, form: Format) -> None:
    """Measure the CPU of actions on servers, in a cloud of its own, and compare it with that of their builds.

    The actions are stop, start, hard reboot, rebuild, snapshot (of a disk of 1 MiB), migration and resize (both with
    their confirmation), live migration, shelve and unshelve.

    \b
    Example: skep bench actions --json
             skep bench actions --deployment processes --servers 100 --hosts 8
    """
    from skep.cli.benchmarks.actions import run

    figures = run(
        deployment=deployment,
        servers=servers,
        concurrency=concurrency,
        hosts=hosts,
        cells=cells,
        progress=lambda what: click.echo(what, err=True),
    )
    _show(figures, form)
    sys.exit(1 if figures.refused or figures.unfinished else 0)


@bench.command()
@click.option("--servers", type=click.IntRange(100, 1_000_000), default=100_000, show_default=True, help="Servers.")
@click.option("--hosts", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Fake hosts in all.")
@click.option("--cells", type=click.IntRange(1, 100), default=2, show_default=True, help="Cells.")
@click.option("--seconds", type=click.FloatRange(5, 3600), default=60, show_default=True, help="How long to count.")
@format_option
def settled(servers: int, hosts: int, cells: int, seconds: float, form: Format) -> None:
    """Measure what a cloud with many servers costs while it gets no requests.

    Example: skep bench settled --servers 10000 --hosts 20 --seconds 20
    """
    from skep.cli.benchmarks.settled import run

    figures = run(servers=servers, hosts=hosts, cells=cells, seconds=seconds)
    _show(figures, form)


@bench.command()
@click.option("--servers", type=click.IntRange(100, 1_000_000), default=10_000, show_default=True, help="Servers.")
@click.option("--projects", type=click.IntRange(1, 1000), default=100, show_default=True, help="Projects.")
@click.option(
    "--ports", type=click.IntRange(0, 10), default=0, show_default=True, help="Ports of each server, each on a network."
)
@click.option("--hosts", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Fake hosts in all.")
@click.option("--cells", type=click.IntRange(1, 100), default=2, show_default=True, help="Cells.")
@click.option("--rate", type=click.FloatRange(1, 10_000), default=200, show_default=True, help="Requests a second.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=30, show_default=True, help="How long to ask.")
@click.option("--one-core", is_flag=True, help="Run the cloud on one core of the machine.")
@format_option
def reads(
    servers: int,
    projects: int,
    ports: int,
    hosts: int,
    cells: int,
    rate: float,
    seconds: float,
    one_core: bool,
    form: Format,
) -> None:
    """Ask one process with many servers for lists and single things at an even rate, and measure the answers.

    A request that finds the former ones unanswered is sent all the same, and waiting counts. Exit status 1: not all
    answers were good.

    \b
    Example: skep bench reads --json
             skep bench reads --servers 1000 --projects 10 --rate 50 --seconds 10
             skep bench reads --ports 2 --one-core
    """
    from skep.cli.benchmarks.reads import run

    figures = run(
        servers=servers,
        projects=projects,
        ports=ports,
        hosts=hosts,
        cells=cells,
        rate=rate,
        seconds=seconds,
        one_core=one_core,
    )
    _show(figures, form)
    sys.exit(1 if figures.failed else 0)


@bench.command()
@click.option("--servers", type=click.IntRange(30, 100_000), default=600, show_default=True, help="Servers to create.")
@click.option("--hosts", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Fake hosts in all.")
@click.option("--cells", type=click.IntRange(1, 100), default=2, show_default=True, help="Cells.")
@format_option
def restart(servers: int, hosts: int, cells: int, form: Format) -> None:
    """Kill the whole cloud (SIGKILL) while it builds, restart it, and measure how soon builds continue.

    Example: skep bench restart --servers 600
    """
    from skep.cli.benchmarks.restart import run

    figures = run(servers=servers, hosts=hosts, cells=cells)
    _show(figures, form)
    sys.exit(1 if figures.lost or figures.errors or figures.active != figures.answered else 0)


@bench.command()
@click.option(
    "--backend",
    type=click.Choice(["memory", "sqlite", "postgresql", "memcached", "nats"]),
    default="memory",
    show_default=True,
    help="Where host states are shared.",
)
@click.option("--schedulers", type=click.IntRange(1, 64), default=2, show_default=True, help="Schedulers.")
@click.option("--hosts", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Made-up hosts.")
@click.option("--rate", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Requests a second.")
@click.option("--url", default="", help="An empty server to use; without one a server is started for the run.")
@format_option
def sync(backend: str, schedulers: int, hosts: int, rate: int, url: str, form: Format) -> None:
    """Measure schedulers that share host states: delay of changes, rate of claims, conflicts.

    Schedulers are processes of their own, but for the backend that is a process's memory.

    Example: skep bench sync --backend nats --schedulers 2 --hosts 10000
    """
    from skep.cli.benchmarks.sync.run import run

    figures = run(
        backend=backend,
        url=url,
        schedulers=schedulers,
        hosts=hosts,
        rate=rate,
        progress=lambda what: click.echo(what, err=True),
    )
    _show(figures, form)
    sys.exit(1 if figures.double_bookings or figures.wrongly_refused or figures.audit_differences else 0)


@bench.command()
@click.option(
    "--workload",
    type=click.Choice(list(NAMES)),
    default="mixed",
    show_default=True,
    help="The requests, and the events beside them.",
)
@click.option("--hosts", type=click.IntRange(1, 2_000_000), default=5000, show_default=True, help="Made-up hosts.")
@click.option("--shapes", type=click.IntRange(1, 1000), default=50, show_default=True, help="Kinds of servers.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5, show_default=True, help="How long to decide.")
@click.option(
    "--reference-seconds",
    type=click.FloatRange(0, 600),
    default=3,
    show_default=True,
    help="How long the plain scheduler of the laboratory decides for comparison, where it is installed; 0: not at all.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed makes other hosts and kinds.")
@format_option
def scheduler(
    workload: str, hosts: int, shapes: int, seconds: float, reference_seconds: float, seed: int, form: Format
) -> None:
    """Measure how fast placement decides: whole decisions, each claimed before the next, in one thread.

    Hosts and requests are made up and differ with the seed. Nothing is stored: what carries host states is measured
    by `skep bench sync`.

    \b
    Example: skep bench scheduler --hosts 100000 --workload mixed --json
             skep bench scheduler --hosts 100000 --workload load
    """
    from skep.cli.benchmarks.scheduler.run import run

    figures = run(
        workload=workload,
        hosts=hosts,
        shapes=shapes,
        seed=seed,
        seconds=seconds,
        reference_seconds=reference_seconds,
        progress=lambda what: click.echo(what, err=True),
    )
    _show(figures, form)
