"""`skep simulate`: a trace on a made-up cloud or on a running cloud's hosts, and recorded decisions once more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.failures import Failed, Refused
from skep.cli.output import print_json, print_rows
from skep.cli.remote import cloud_option

if TYPE_CHECKING:
    from skep.simulator.clouds import Plan
    from skep.simulator.events import Trace
    from skep.simulator.policies import Policy
    from skep.simulator.simulation import Outcome

FILE = click.Path(exists=True, path_type=Path)
INSTALL_CHARTS = "charts need matplotlib: install Skep with its extra `charts`"


@click.command()
@click.argument("trace", required=False, type=FILE)
@click.option("--replay", type=FILE, help="Decide once more what a decision log (file or directory) holds.")
@click.option("--hosts", type=click.IntRange(1, 10_000_000), help="Hosts of a made-up cloud, all alike.")
@click.option("--vcpus", type=click.IntRange(1), default=64, show_default=True, help="Of each host.")
@click.option("--memory", type=click.IntRange(1), default=256, show_default=True, help="Of each host, in GiB.")
@click.option("--disk", type=click.IntRange(0), default=0, show_default=True, help="Of each host, in GiB.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="Of each host.")
@click.option("--cells", type=click.IntRange(1), default=1, show_default=True, help="Cells of a made-up cloud.")
@click.option("--zones", type=click.IntRange(0), default=0, show_default=True, help="Zones; 0: the default one alone.")
@click.option(
    "--cpu-allocation-ratio", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Of VCPU."
)
@click.option("--cloud-file", type=FILE, help="Hosts of a made-up cloud from a TOML or CSV file.")
@click.option("--live", is_flag=True, help="Hosts of the running cloud, with what they hold; only read.")
@click.option("--empty", is_flag=True, help="With --live or a log: as if nobody were on these hosts.")
@cloud_option
@click.option("--outages", type=FILE, help="CSV host,from,until (seconds): when hosts fail.")
@click.option("--policy", default="default", show_default=True, metavar="NAME|FILE", help="How hosts are chosen.")
@click.option("--against", metavar="NAME|FILE", help="Another policy, beside it.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one chooses others of equal hosts.")
@click.option("--first", type=click.IntRange(1), help="Only so many servers of the trace.")
@click.option("--samples", type=click.IntRange(2, 100_000), default=200, show_default=True, help="Moments measured.")
@click.option("--charts", type=click.Path(file_okay=False, path_type=Path), help="Write PNG files into this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(trace: Path | None, replay: Path | None, as_json: bool, **options: Any) -> None:
    """Place the servers of TRACE and show how well that went.

    TRACE is a CSV file (Huawei-East-1, Alibaba's openb, AzurePackingTraceV1) or a decision log. Policies: default,
    stack, best-fit, fill, random, a weigher's name (with `-` before it: the other way round), or a TOML file: the
    [scheduler] section of a configuration, or the fields of a policy.

    Example: skep simulate trace.csv --hosts 20 --policy best-fit --against default
    """
    from skep.simulator.faults import FAULTS

    if (trace is None) == (replay is None):
        raise Refused("say either a TRACE to be placed, or --replay LOG")
    try:
        if replay is not None:
            _replay(replay, as_json=as_json)
        elif trace is not None:
            _simulate(trace, options, as_json=as_json)
    except FAULTS as error:
        raise Refused(str(error)) from error


def _simulate(path: Path, options: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    from skep.simulator.events import first_servers
    from skep.simulator.simulation import run
    from skep.simulator.traces.reading import read_outages

    if options["charts"] is not None:
        _check_charts()
    names = [options["policy"], *([options["against"]] if options["against"] else [])]
    policies = [_policy(name) for name in names]
    trace, hosts_of_log = _trace(path, empty=options["empty"])
    if options["first"] is not None:
        trace = first_servers(trace, options["first"])
    if options["outages"] is not None:
        trace = msgspec.structs.replace(trace, changes=(*trace.changes, *read_outages(options["outages"])))
    plan = _plan(options, hosts_of_log)
    _check_outages(trace, plan)
    outcomes = []
    with _progress() as show:
        for policy in policies:
            told = show(policy.name)
            outcomes.append(
                run(trace, plan, policy, seed=options["seed"], samples=options["samples"], on_progress=told)
            )
    charts = _draw(outcomes, options["charts"])
    if as_json:
        print_json({"trace": trace.name, "cloud": plan.name, "policies": outcomes, "charts": charts})
        return
    click.echo(f"{len(trace.servers)} servers of {trace.name} on {len(plan.hosts)} hosts of {plan.name}")
    _print(outcomes)
    for chart in charts:
        click.echo(f"wrote {chart}")


def _trace(path: Path, *, empty: bool) -> tuple[Trace, Plan | None]:
    """Read a trace; of a decision log also the hosts that it tells of."""
    from skep.simulator import recorded
    from skep.simulator.traces.reading import read

    if path.is_dir() or recorded.is_log(path):
        return recorded.read(path, empty=empty)
    return read(path), None


def _plan(options: dict[str, Any], of_log: Plan | None) -> Plan:
    """Return the cloud that is meant. Raises Refused unless one is."""
    from skep.simulator.clouds import HostKind, MadeUp, made_up, read

    named = [name for name in ("hosts", "cloud_file", "live") if options[name]]
    if len(named) > 1:
        raise Refused("say one of --hosts, --cloud-file and --live")
    if options["cloud_file"]:
        return read(options["cloud_file"])
    if options["live"]:
        return _live(options["cloud"], empty=options["empty"])
    if options["hosts"]:
        kind = HostKind(
            count=options["hosts"],
            vcpus=options["vcpus"],
            memory_gib=options["memory"],
            disk_gib=options["disk"],
            gpus=options["gpus"],
            cpu_allocation_ratio=options["cpu_allocation_ratio"],
        )
        return made_up(MadeUp(hosts=(kind,), cells=options["cells"], zones=options["zones"]))
    if of_log is not None:
        return of_log
    raise Refused("say on which hosts: --hosts N, --cloud-file FILE or --live")


def _live(cloud: str | None, *, empty: bool) -> Plan:
    """Read the hosts of a running cloud, a page at a time, and its aggregates."""
    import msgspec

    from skep.cli.remote import connect
    from skep.domain.hosts import HostState
    from skep.simulator.clouds import Aggregate, of_states

    remote = connect(cloud)
    states: list[HostState] = []
    marker: str | None = ""
    while marker is not None:
        page = remote.admin("GET", f"/host-states?limit=1000{f'&marker={marker}' if marker else ''}")
        states += msgspec.convert(page["host_states"], list[HostState])
        marker = page["next_marker"]
    if not states:
        raise Failed("the cloud has no host that has reported")
    aggregates = {
        int(one["id"]): Aggregate(hosts=tuple(one["hosts"]), metadata=dict(one["metadata"]))
        for one in remote.compute("/os-aggregates")["aggregates"]
    }
    return of_states(states, aggregates, name=remote.origin, empty=empty)


def _policy(name: str) -> Policy:
    """Return the policy of a name or a file, which may be a configuration."""
    from skep.simulator.policies import checked, named, of_document, read_document

    path = Path(name)
    if not (path.suffix == ".toml" or path.is_file()):
        return named(name)
    document = read_document(path)
    if "scheduler" not in document:
        return of_document(path.stem, document)
    from skep.config import load
    from skep.processes.scheduling import scheduler_settings

    return checked(path.stem, scheduler_settings(load(path, {}).config))


def _check_outages(trace: Trace, plan: Plan) -> None:
    known = {host.usage.host for host in plan.hosts}
    strange = sorted({change.host for change in trace.changes} - known)
    if strange:
        raise Refused(f"outages: the cloud has no host {strange[0]}")


def _check_charts() -> None:
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise Refused(INSTALL_CHARTS)


def _draw(outcomes: list[Outcome], directory: Path | None) -> list[str]:
    if directory is None:
        return []
    from skep.simulator.charts import draw

    return [str(path) for path in draw(outcomes, directory)]


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """Show on a terminal how far each policy is; programs are spared it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as bar:

        def show(policy: str) -> Callable[[int, int], None]:
            task = bar.add_task(policy, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield show


def _print(outcomes: list[Outcome]) -> None:
    """Print a line for each measure, a column for each policy."""
    measures: list[tuple[str, Callable[[Outcome], str]]] = [
        ("placed", lambda one: str(one.placed)),
        ("refused", lambda one: str(one.refused)),
        ("refused by", lambda one: ", ".join(f"{stage} {count}" for stage, count in one.refused_by.items()) or "-"),
        ("first refusal after", lambda one: _hours(one.first_refusal_at)),
        ("most running", lambda one: str(one.most_running)),
        ("least empty hosts", lambda one: str(one.least_empty_hosts)),
    ]
    for name in outcomes[0].mean_utilisation:
        measures += [
            (f"{name}: mean in use", partial(_share, "mean_utilisation", name)),
            (f"{name}: most in use", partial(_share, "peak_utilisation", name)),
            (f"{name}: mean fragmented", partial(_share, "mean_fragmentation", name)),
        ]
    keys = [str(number) for number in range(len(outcomes))]
    rows = [
        {"measure": title, **{key: value(one) for key, one in zip(keys, outcomes, strict=True)}}
        for title, value in measures
    ]
    titles = {key: one.policy for key, one in zip(keys, outcomes, strict=True)}
    print_rows(rows, {"measure": "", **titles}, "table")


def _share(measure: str, name: str, outcome: Outcome) -> str:
    shares: dict[str, float] = getattr(outcome, measure)
    return f"{100 * shares.get(name, 0.0):.2f} %"


def _hours(micros: int | None) -> str:
    return "-" if micros is None else f"{micros / 3_600_000_000:.1f} h"


def _replay(path: Path, *, as_json: bool) -> None:
    """Decide once more; status 1 unless all decisions come out the same."""
    import dataclasses

    from skep.scheduler.service.decision_log.reading import entries, segments
    from skep.simulator.replay import Tally, replay

    tally = Tally()
    files = segments(path)
    with _progress() as show:
        told = show("segments")
        for number, file in enumerate(files):
            if told is not None:
                told(number, len(files))
            replay(entries(file), tally)
    figures = dataclasses.asdict(tally)
    if as_json:
        print_json(figures)
    else:
        differences = figures.pop("differences")
        for name, value in figures.items():
            click.echo(f"{name.replace('_', ' '):>12}  {value}")
        for one in differences:
            click.echo(f"segment {one['segment']} of {one['run']}, decision {one['decision']}, {one['instance']}:")
            click.echo(f"  recorded: {one['recorded']}")
            click.echo(f"  replayed: {one['replayed']}")
    if tally.reproduced != tally.decisions:
        raise Failed(f"{tally.decisions - tally.reproduced} of {tally.decisions} decisions came out otherwise")
