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
from skep.cli.failures import Failed, Refused
from skep.cli.output import Format, format_option, print_json, print_rows, progress
from skep.cli.remote import Remote, cloud_option, connect, meant_elsewhere, names_a_cloud
from skep.config.loading import FILE_VARIABLE, Loaded

COLUMNS = {"name": "Check", "verdict": "Verdict", "message": "What was found"}
OUTCOMES = {"kind": "Difference", "subject": "About", "outcome": "Outcome", "meaning": "Meaning"}
DIFFERENCES = {"kind": "Difference", "subject": "About", "evidence": "Evidence", "meaning": "Meaning"}


@click.command()
@click.option("--audit", is_flag=True, help="Compare what the running cloud's databases and placement say.")
@click.option("--repair", is_flag=True, help="With --audit: say what would be mended; with --yes mend it.")
@click.option("--yes", is_flag=True, help="With --repair: do it.")
@config_option
@format_option
@cloud_option
def doctor(audit: bool, repair: bool, yes: bool, config_file: Path | None, form: Format, cloud: str | None) -> None:
    """Check configuration, machine and running cloud. Exit status 1 when something is bad.

    It changes nothing, but for `--audit --repair --yes`.

    \b
    Examples:
      skep doctor
      skep doctor --audit --format json
      skep doctor --audit --repair
    """
    if (repair and not audit) or (yes and not repair):
        raise click.UsageError("--repair goes with --audit, --yes with --repair")
    if repair:
        _repair(form, cloud, config_file, dry_run=not yes)
        return
    if audit:
        _audit(form, cloud, config_file)
        return
    found = list(_checks(config_file, cloud))
    print_rows([msgspec.structs.asdict(check) for check in found], COLUMNS, form)
    bad = [check.name for check in found if check.verdict == "bad"]
    if bad:
        raise Failed(f"not as it should be: {', '.join(bad)}")


def _checks(config_file: Path | None, cloud: str | None) -> Iterator[Check]:
    from skep.config import ConfigError, load

    running, elsewhere = False, None
    try:
        loaded = load(config_file, os.environ)
    except ConfigError as error:
        yield Check("configuration", "bad", str(error))
    else:
        state = Path(loaded.config.state.directory)
        elsewhere = meant_elsewhere(cloud, state, config_file)
        running = elsewhere is None and checks.is_running(state)
        yield Check("configuration", "good", _sources(loaded, config_file))
        yield from checks.of_machine()
        if elsewhere is None:
            yield from checks.of_installation(loaded.config, running=running)
        else:
            yield Check("installation", "skipped", f"{state} is not that of the cloud that is meant, {elsewhere}")
    if running or cloud is not None or names_a_cloud(os.environ):
        yield from _of_cloud(cloud, config_file)
    else:
        yield Check("cloud", "skipped", "none runs on this state directory and none is named; `skep up` starts one")


def _sources(loaded: Loaded, config_file: Path | None) -> str:
    """Say where the configuration comes from."""
    named = os.environ.get(FILE_VARIABLE)
    file = str(config_file) if config_file is not None else f"{named} ({FILE_VARIABLE})" if named else "defaults"
    variables = sorted(source.where for source in loaded.sources.values() if source.kind == "environment")
    return f"{file} and {', '.join(variables)}" if variables else file


def _of_cloud(cloud: str | None, config_file: Path | None) -> Iterator[Check]:
    try:
        remote = connect(cloud, config_file)
    except (Failed, Refused) as error:
        yield Check("token", "bad", error.message)
        return
    yield Check("token", "good", f"signed in, compute API at {remote.compute_url}")
    try:
        yield from _readiness(remote)
    except Failed as error:
        yield Check("cloud", "bad", error.message)


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


def _troubles(hosts: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Say what is wrong with single hosts and records; nothing where nothing is."""
    refused = [f"{host['host']}: {host['refused']['because']}" for host in hosts if host["refused"]]
    if refused:
        yield Check("reports", "warning", f"{len(refused)} hosts are not understood, {refused[0]}")
    doubled = [host["host"] for host in hosts if host["stale_agent"]]
    if doubled:
        yield Check("agents", "warning", f"an older agent with the identity of a younger spoke: {', '.join(doubled)}")
    if records:
        first = f"{records[0]['namespace']}/{records[0]['key']}: {records[0]['reason']}"
        yield Check("records", "warning", f"{len(records)} of placement's records are not understood, {first}")


def _audit(form: Format, cloud: str | None, config_file: Path | None) -> None:
    remote = connect(cloud, config_file)
    with progress("Comparing databases and placement, twice"):
        audit = remote.admin("GET", "/audit")["audit"]
    if form == "json":
        print_json(audit)
    else:
        for line in audit_lines(audit):
            click.echo(line)
        if audit["differences"]:
            print_rows(audit["differences"], DIFFERENCES, form)
    if audit["differences"] or audit["unread"]:
        total = sum(audit["counts"].values())
        raise Failed(f"{total} differences" if total else "not everything could be read")


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
            click.echo("Nothing was changed; --yes mends what can be mended.")
    left = sum(repair["counts"].values()) - repair["mended"]
    if left or repair["unread"]:
        raise Failed(f"{left} differences left" if left else "not everything could be read")


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
