"""`skep doctor`: is this machine fit, does the cloud run well, does its data agree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from skep.cli import checks
from skep.cli.checks import Check
from skep.cli.config import config_option
from skep.cli.failures import CommandRefused, Failed
from skep.cli.host import not_believed
from skep.cli.installed import load_installed
from skep.cli.output import Format, counted, format_option, print_json, print_rows, progress
from skep.cli.remote import (
    FORBIDDEN,
    STATE_CLOUD,
    Answered,
    Remote,
    cloud_option,
    connect,
    meant_elsewhere,
    names_a_cloud,
)
from skep.cli.tables import Table
from skep.config.loading import FILE_VARIABLE, LoadedConfig
from skep.domain.heard_time import OFF_SECONDS

TABLE = Table({"name": "Check", "verdict": "Verdict", "message": "What was found"})
OUTCOMES = Table({"kind": "Difference", "subject": "About", "outcome": "Outcome", "meaning": "Meaning"})
DIFFERENCES = Table(
    {"kind": "Difference", "subject": "About", "where": "Where", "evidence": "Evidence", "meaning": "Meaning"},
    gives_way=("meaning", "evidence", "where"),
)


@click.command()
@click.option("--audit", is_flag=True, help="Compare the running cloud's databases with its host states.")
@click.option("--repair", is_flag=True, help="With --audit: show the possible repairs; with --yes make them.")
@click.option("--yes", is_flag=True, help="With --repair: do it.")
@config_option
@format_option
@cloud_option
def doctor(audit: bool, repair: bool, yes: bool, config_file: Path | None, form: Format, cloud: str | None) -> None:
    """Check configuration, machine and running cloud. Exit status 1 if a check fails.

    Only `--audit --repair --yes` changes anything.

    \b
    Examples:
      skep doctor
      skep doctor --audit --format json
      skep doctor --audit --repair
    """
    if (repair and not audit) or (yes and not repair):
        raise click.UsageError("--repair needs --audit, --yes needs --repair")
    if repair:
        _repair(form, cloud, config_file, dry_run=not yes)
        return
    if audit:
        _audit(form, cloud, config_file)
        return
    found = list(_checks(config_file, cloud))
    print_rows([msgspec.structs.asdict(check) for check in found], TABLE, form)
    bad = [check.name for check in found if check.verdict == "bad"]
    if bad:
        raise Failed(f"not as it should be: {', '.join(bad)}")


def _checks(config_file: Path | None, cloud: str | None) -> Iterator[Check]:
    from skep.config import ConfigError

    running, of_processes, elsewhere = False, False, None
    try:
        loaded = load_installed(config_file)
    except ConfigError as error:
        yield Check("configuration", "bad", str(error))
    else:
        state = Path(loaded.config.state.directory)
        elsewhere = meant_elsewhere(cloud, state, config_file)
        running = elsewhere is None and checks.is_running(state)
        of_processes = checks.is_stopped(state)
        yield Check("configuration", "good", _sources(loaded, config_file))
        yield from checks.of_machine()
        if elsewhere is None:
            yield from checks.of_installation(loaded.config, running=running)
        else:
            yield Check("installation", "skipped", f"{state} is not that of the cloud that is meant, {elsewhere}")
    if running or cloud is not None or names_a_cloud(os.environ):
        yield from _of_cloud(cloud, config_file)
    else:
        start = f"`skep up{' --processes' if of_processes else ''}` starts one"
        yield Check("cloud", "skipped", f"none runs on this state directory and none is named; {start}")


def _sources(loaded: LoadedConfig, config_file: Path | None) -> str:
    """Say where the configuration comes from."""
    named = os.environ.get(FILE_VARIABLE)
    file = str(config_file) if config_file is not None else f"{named} ({FILE_VARIABLE})" if named else "defaults"
    variables = sorted(source.where for source in loaded.sources.values() if source.kind == "environment")
    ours = [name for name in variables if name in os.environ]
    written = ["what its cloud of processes has written"] if len(ours) < len(variables) else []
    more = ", ".join((*ours, *written))
    return f"{file} and {more}" if more else file


def _of_cloud(cloud: str | None, config_file: Path | None) -> Iterator[Check]:
    try:
        remote = connect(cloud, config_file)
    except (Failed, CommandRefused) as error:
        yield Check("token", "bad", error.message)
        return
    yield Check("token", "good", f"signed in, compute API at {remote.compute_url}")
    try:
        yield from _readiness(remote)
    except Failed as error:
        yield Check("cloud", "bad", _advised(error))


def _advised(error: Failed) -> str:
    """Return what went wrong, and what to do where a role was missing: an admin alone may ask all that is asked."""
    if not isinstance(error, Answered) or error.status != FORBIDDEN:
        return error.message
    return f"{error.message} Sign in as an admin (OS_CLOUD={STATE_CLOUD} for a cloud of `skep up`)."


def _readiness(remote: Remote) -> Iterator[Check]:
    with progress("Asking the cloud"):
        ready, reasons, warnings = remote.readiness()
        hosts = remote.admin("GET", "/hosts")["hosts"]
        records = remote.admin("GET", "/namespaces")["quarantined"]
    yield Check("ready", "good" if ready else "bad", "; ".join(reasons) or "every part answers")
    if warnings:
        yield Check("cells", "warning", "; ".join(warnings))
    states = sorted({host["state"] for host in hosts})
    each = ", ".join(f"{sum(host['state'] == state for host in hosts)} {state}" for state in states)
    well = all(state == "up" for state in states) and bool(hosts)
    yield Check("hosts", "good" if well else "warning", each or "none yet")
    yield from _troubles(hosts, records)
    yield from _clocks(remote)
    yield from _recovery(remote)


def _recovery(remote: Remote) -> Iterator[Check]:
    """Say which databases recover, and how many decisions are open. A cloud of before 0.6.0 does not tell."""
    try:
        found = remote.admin("GET", "/recovery")["recovery"]
    except Failed:
        return
    names = [one["name"] for one in found["databases"]]
    parts = [f"{counted(len(names), 'database')} went back in time: {', '.join(names[:NAMED])}"] if names else []
    if found["hosts"]:
        parts.append(f"{counted(len(found['hosts']))} {'has' if len(found['hosts']) == 1 else 'have'} not reported yet")
    if decisions := found.get("decisions"):
        parts.append(f"{counted(len(decisions), 'server')} in doubt, for you to decide")
    parts += [f"not read: {reason}" for reason in found["unread"]]
    if parts:
        yield Check("recovery", "warning", f"{'; '.join(parts)}; see `skep recovery list`")


def _clocks(remote: Remote) -> Iterator[Check]:
    """Say which processes' clocks are off. A cloud of before 0.6.0 does not tell."""
    try:
        found = remote.admin("GET", "/clocks")["clocks"]
    except Failed:
        return
    off = [one for one in found if abs(one["seconds_ahead"]) >= OFF_SECONDS]
    named = "; ".join(map(clock_line, off[:NAMED])) + (f" ... {len(off)} in all" if off[NAMED:] else "")
    yield Check("clocks", "warning" if off else "good", named or "as those of the databases")


def clock_line(clock: Mapping[str, Any]) -> str:
    """Say by how much the clock of one process differs."""
    ahead = clock["seconds_ahead"]
    where = f"{clock['process']} on {clock['host']}" if clock["host"] else clock["process"]
    which = "ahead of" if ahead > 0 else "behind"
    return f"{where} is {abs(ahead):.0f} s {which} the database of {clock['database']}"


NAMED = 20
"""Hosts or databases that one line names."""


def _troubles(hosts: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Say what is wrong with single hosts and records; nothing where nothing is."""
    refused = [f"{host['host']}: {host['refused']['because']}" for host in hosts if host["refused"]]
    if refused:
        yield Check("reports", "warning", f"{len(refused)} hosts are not understood, {refused[0]}")
    unfit = [f"{host['host']}: {host['unfit']}" for host in hosts if host.get("unfit")]
    if unfit:
        yield Check("drivers", "warning", f"{len(unfit)} hosts accept no builds, {unfit[0]}")
    doubled = [host["host"] for host in hosts if host["stale_agent"]]
    if doubled:
        yield Check("agents", "warning", f"an older agent with the identity of a younger spoke: {', '.join(doubled)}")
    strange = [host["host"] for host in hosts if not_believed(host)]
    if strange:
        named = f"{', '.join(strange[:NAMED])}{' ...' if strange[NAMED:] else ''}"
        yield Check("keys", "warning", f"agents with another key than is bound: {named}; `skep host release-key HOST`")
    unsigned = [host["host"] for host in hosts if host.get("unsigned")]
    if unsigned:
        what = f"{len(unsigned)} hosts may speak unsigned until their agents are upgraded and restarted"
        yield Check(
            "signatures", "warning", f"{what}: {', '.join(unsigned[:NAMED])}{' ...' if unsigned[NAMED:] else ''}"
        )
    if records:
        first = f"{records[0]['namespace']}/{records[0]['key']}: {records[0]['reason']}"
        yield Check("records", "warning", f"{len(records)} of placement's records are not understood, {first}")


def _audit(form: Format, cloud: str | None, config_file: Path | None) -> None:
    remote = connect(cloud, config_file)
    try:
        with progress("Comparing databases and placement, twice"):
            audit = remote.admin("GET", "/audit")["audit"]
    except Answered as error:
        raise Failed(_advised(error)) from error
    if form == "json":
        print_json(audit)
    else:
        for line in audit_lines(audit):
            click.echo(line)
        if audit["differences"]:
            print_rows([{**one, "where": where(one["evidence"])} for one in audit["differences"]], DIFFERENCES, form)
    if audit["differences"] or audit["unread"]:
        total = sum(audit["counts"].values())
        raise Failed(counted(total, "difference") if total else "not everything could be read")


def _repair(form: Format, cloud: str | None, config_file: Path | None, *, dry_run: bool) -> None:
    remote = connect(cloud, config_file)
    with progress("Comparing databases and placement, twice" + ("" if dry_run else ", and mending")):
        repair = remote.admin("POST", "/audit/repair", {"dry_run": dry_run})["repair"]
    if form == "json":
        print_json(repair)
    else:
        for line in audit_lines(repair):
            click.echo(line)
        if repair["differences"]:
            print_rows(repair["differences"], OUTCOMES, form)
        if dry_run and repair["differences"]:
            click.echo("Nothing was changed; --yes repairs what can be repaired.")
    left = sum(repair["counts"].values()) - repair["mended"]
    if left or repair["unread"]:
        raise Failed(f"{counted(left, 'difference')} left" if left else "not everything could be read")


def where(evidence: Mapping[str, Any]) -> str:
    """Return the hosts that evidence names, else the cell: what an operator looks for first."""
    guests = evidence.get("guests") or ()
    hosts = [str(one["host"]) for one in (evidence, *guests) if one.get("host")]
    return ", ".join(dict.fromkeys(hosts)) or str(evidence.get("cell") or "")


def audit_lines(audit: Mapping[str, Any]) -> Iterator[str]:
    """Say what was compared, what could not be, and how many differences of each kind there are."""
    compared = ", ".join(f"{count} {noun}" for noun, count in sorted(audit["checked"].items()))
    yield f"Compared {compared or 'nothing'}."
    for reason in audit["unread"]:
        yield f"Not read: {reason}."
    if not audit["counts"]:
        yield "Everything that was read agrees."
    for kind, count in audit["counts"].items():
        yield f"{count} {kind}"
