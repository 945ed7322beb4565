"""`skep simulate`: a trace on a made-up cloud or on a running cloud's hosts, and recorded decisions once more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import Format, format_option, print_json
from skep.cli.remote import cloud_option
from skep.cli.simulated import draw_charts, prepare_charts, print_outcomes, progress

if TYPE_CHECKING:
    from skep.placement.settings import SchedulerSettings
    from skep.simulator.clouds import CloudPlan
    from skep.simulator.events import Trace
    from skep.simulator.policies import SimulatedPolicy

FILE = click.Path(exists=True, path_type=Path)
POLICIES = frozenset({"policy", "against"})
OF_REPLAYS = POLICIES | {"seed", "samples", "charts", "empty"}
"""Options beside `--replay LOG` and `--json`: with another policy, else none of them."""


@click.command()
@click.argument("trace", required=False, type=FILE)
@click.option("--replay", type=FILE, help="Decide the recorded decisions of a log (file or directory) again.")
@click.option("--hosts", type=click.IntRange(1, 10_000_000), help="Number of equal simulated hosts.")
@click.option("--vcpus", type=click.IntRange(1), default=64, show_default=True, help="Of each host.")
@click.option("--memory", type=click.IntRange(1), default=256, show_default=True, help="Of each host, in GiB.")
@click.option("--disk", type=click.IntRange(0), default=0, show_default=True, help="Of each host, in GiB.")
@click.option("--gpus", type=click.IntRange(0, 1024), default=0, show_default=True, help="Of each host.")
@click.option("--cells", type=click.IntRange(1), default=1, show_default=True, help="Cells of the simulated cloud.")
@click.option("--zones", type=click.IntRange(0), default=0, show_default=True, help="Zones; 0: the default one alone.")
@click.option(
    "--cpu-allocation-ratio", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Of VCPU."
)
@click.option("--cloud-file", type=FILE, help="Simulated hosts from a TOML or CSV file.")
@click.option("--live", is_flag=True, help="Hosts of the running cloud with their servers; only read.")
@click.option("--empty", is_flag=True, help="With --live or a log: ignore the servers on these hosts.")
@cloud_option
@click.option("--outages", type=FILE, help="CSV host,from,until (seconds): when hosts fail.")
@click.option("--policy", default="default", show_default=True, metavar="NAME|FILE", help="How hosts are chosen.")
@click.option("--against", metavar="NAME|FILE", help="A second policy to compare with.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the choice among equal hosts.")
@click.option("--first", type=click.IntRange(1), help="Only the first N servers of the trace.")
@click.option("--lifetimes", is_flag=True, help="Give servers their lifetimes from the trace.")
@click.option("--lifetimes-share", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="Share of these.")
@click.option(
    "--lifetimes-wrong-by",
    type=click.FloatRange(1, 1000),
    default=1.0,
    show_default=True,
    help="The largest factor by which a given lifetime is too long or too short.",
)
@click.option("--samples", type=click.IntRange(2, 100_000), default=200, show_default=True, help="Moments measured.")
@click.option("--charts", type=click.Path(file_okay=False, path_type=Path), help="Write PNG files into this directory.")
@format_option
@click.pass_context
def simulate(ctx: click.Context, /, trace: Path | None, replay: Path | None, form: Format, **options: Any) -> None:
    """Place the servers of TRACE and show how well that went.

    TRACE is a CSV file (Huawei-East-1, Alibaba's openb, AzurePackingTraceV1) or a decision log. Policies: default,
    stack, best-fit, fill, lifetimes, random, a weigher's name (with `-` before it: the other way round), or a TOML
    file: the [scheduler] section of a configuration, or the fields of a policy. Of a decision log, what a policy does
    not say is as it was recorded: one by name changes the weighers alone.

    With --replay nothing is placed: recorded decisions must come out the same. With a policy beside it, what that
    one would have decided is shown.

    \b
    Examples:
      skep simulate trace.csv --hosts 20 --policy best-fit --against default
      skep simulate --replay /var/lib/skep/decisions --policy fill
    """
    from skep.simulator.faults import FAULTS

    if (trace is None) == (replay is None):
        raise CommandRefused("expected either a TRACE or --replay LOG")
    as_json = form == "json"
    said = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    try:
        if replay is not None:
            _check_replay(ctx.command, said)
            _replay(replay, said, options, as_json=as_json)
        elif trace is not None:
            _simulate(trace, options, as_json=as_json)
    except FAULTS as error:
        raise CommandRefused(_words(error)) from error


def _words(error: Exception) -> str:
    """Return what is wrong: of what the system said, the file first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _check_replay(command: click.Command, said: set[str]) -> None:
    """Raise Refused for an option that means nothing to a replay."""
    otherwise = bool(said & POLICIES)
    option_of = {option.name: option.opts[0] for option in command.params}
    for name in sorted(said - (OF_REPLAYS if otherwise else frozenset())):
        without = "" if otherwise or name not in OF_REPLAYS else " without another --policy"
        raise CommandRefused(f"--replay{without} does not support {option_of[name]}")


def _replay(log: Path, said: set[str], options: dict[str, Any], *, as_json: bool) -> None:
    from skep.cli.replaying import replay_otherwise, replay_same
    from skep.simulator.what_if import recorded_settings

    if not said & POLICIES:
        replay_same(log, as_json=as_json)
        return
    base = recorded_settings(log)
    policies = [_policy(options[name], base) for name in ("policy", "against") if name in said]
    replay_otherwise(log, policies, options, as_json=as_json)


def _simulate(path: Path, options: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    from skep.domain.clock import Clock
    from skep.simulator.events import Telling, first_servers, with_lifetimes
    from skep.simulator.simulation import run
    from skep.simulator.traces.reading import read_outages

    prepare_charts(options["charts"])
    names = [options["policy"], *([options["against"]] if options["against"] else [])]
    base = _recorded(path)
    policies = [_policy(name, base) for name in names]
    trace, hosts_of_log = _trace(path, empty=options["empty"])
    if options["first"] is not None:
        trace = first_servers(trace, options["first"])
    if options["lifetimes"]:
        telling = Telling(
            share=options["lifetimes_share"], wrong_by=options["lifetimes_wrong_by"], seed=options["seed"]
        )
        # What a running cloud's hosts expect is compared with these ends.
        trace = with_lifetimes(trace, Clock().now() if options["live"] else trace.begin, telling)
    if options["outages"] is not None:
        trace = msgspec.structs.replace(trace, changes=(*trace.changes, *read_outages(options["outages"])))
    plan = _plan(options, hosts_of_log)
    _check_outages(trace, plan)
    outcomes = []
    with progress() as show:
        for policy in policies:
            told = show(policy.name)
            outcomes.append(
                run(trace, plan, policy, seed=options["seed"], samples=options["samples"], on_progress=told)
            )
    charts = draw_charts(outcomes, options["charts"], about=f"{trace.name} on {plan.name}")
    if as_json:
        print_json({"trace": trace.name, "cloud": plan.name, "policies": outcomes, "charts": charts})
        return
    click.echo(f"{len(trace.servers)} servers of {trace.name} on {len(plan.hosts)} hosts of {plan.name}")
    print_outcomes(outcomes, charts)


def _trace(path: Path, *, empty: bool) -> tuple[Trace, CloudPlan | None]:
    """Read a trace; of a decision log also the hosts that it tells of."""
    from skep.simulator import recorded
    from skep.simulator.traces.reading import read

    if _is_log(path):
        return recorded.read(path, empty=empty)
    return read(path), None


def _recorded(path: Path) -> SchedulerSettings | None:
    """Return the settings under which a log was recorded, None for another trace: what a policy does not say."""
    from skep.simulator.what_if import recorded_settings

    return recorded_settings(path) if _is_log(path) else None


def _is_log(path: Path) -> bool:
    from skep.simulator import recorded

    return path.is_dir() or recorded.is_log(path)


def _plan(options: dict[str, Any], of_log: CloudPlan | None) -> CloudPlan:
    """Return the cloud that is meant. Raises Refused unless one is."""
    from skep.simulator.clouds import HostKind, MadeUp, made_up, read

    named = [name for name in ("hosts", "cloud_file", "live") if options[name]]
    if len(named) > 1:
        raise CommandRefused("expected one of --hosts, --cloud-file and --live")
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
    raise CommandRefused("expected hosts: --hosts N, --cloud-file FILE or --live")


def _live(cloud: str | None, *, empty: bool) -> CloudPlan:
    """Read the hosts of a running cloud, a page at a time, and its aggregates."""
    from skep.cli.remote import connect
    from skep.domain.decoding import convert
    from skep.domain.hosts import HostState
    from skep.placement.hosts.published import Aggregate
    from skep.simulator.clouds import of_states

    remote = connect(cloud)
    states: list[HostState] = []
    marker: str | None = ""
    while marker is not None:
        page = remote.admin("GET", f"/host-states?limit=1000{f'&marker={marker}' if marker else ''}")
        states += convert(page["host_states"], list[HostState])
        marker = page["next_marker"]
    if not states:
        raise Failed("the cloud has no host that has reported")
    aggregates = {
        int(one["id"]): Aggregate(hosts=tuple(one["hosts"]), metadata=dict(one["metadata"]))
        for one in remote.compute("/os-aggregates")["aggregates"]
    }
    return of_states(states, aggregates, name=remote.origin, empty=empty)


def _policy(name: str, base: SchedulerSettings | None = None) -> SimulatedPolicy:
    """Return the policy of a name or a file, which may be a configuration. `base`: what neither says."""
    from skep.placement.settings import SchedulerSettings
    from skep.simulator.policies import checked, named, of_document, read_document

    path = Path(name)
    if not (path.suffix == ".toml" or path.is_file()):
        return named(name, base or SchedulerSettings())
    document = read_document(path)
    if "scheduler" not in document:
        return of_document(path.stem, document, base or SchedulerSettings())
    from skep.config import load
    from skep.processes.scheduling import scheduler_settings

    return checked(path.stem, scheduler_settings(load(path, {}).config))


def _check_outages(trace: Trace, plan: CloudPlan) -> None:
    known = {host.usage.host for host in plan.hosts}
    strange = sorted({change.host for change in trace.changes} - known)
    if strange:
        example = f", for one {min(known)}" if known else ""
        raise CommandRefused(f"outages: the cloud has no host {strange[0]}; it has {len(known)}{example}")
