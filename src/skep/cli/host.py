"""`skep host`: the hosts of a running cloud, as the operator wants them and as placement holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from skep.cli.output import Format, counted, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect

COLUMNS = {
    "host": "Host",
    "cell": "Cell",
    "zone": "Zone",
    "state": "State",
    "disabled": "Disabled",
    "servers": "Servers",
    "claims": "Claims",
    "failed_builds": "Failed builds",
    "free": "Free",
    "disabled_reason": "Reason",
}


@click.group()
def host() -> None:
    """List, show, enable, disable and fence hosts.

    State: up; silent (its cell has not heard of it lately); down (an operator forced it); unreported (mapped, but not
    heard of since placement started).

    \b
    Example: skep host list --cell cell1
    """


@host.command("list")
@click.option("--cell", metavar="NAME", help="Only hosts of this cell.")
@format_option
@cloud_option
def list_(cell: str | None, form: Format, cloud: str | None) -> None:
    """List hosts with what is free on them.

    \b
    Example: skep host list --cell cell1
    """
    query = f"?cell={quote(cell)}" if cell else ""
    rows = connect(cloud).admin("GET", f"/hosts{query}")["hosts"]
    print_rows(rows if form == "json" else [{**row, "free": free(row)} for row in rows], COLUMNS, form)


@host.command()
@click.argument("name")
@format_option
@cloud_option
def show(name: str, form: Format, cloud: str | None) -> None:
    """Show one host by its name or its node's UUID: resources, traits, claims.

    \b
    Example: skep host show cell1-host2
    """
    record = connect(cloud).admin("GET", f"/hosts/{quote(name, safe='')}")["host"]
    print_record(record if form == "json" else readable(record), form)


@host.command()
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="Why; shown wherever the host is.")
@format_option
@cloud_option
def disable(name: str, reason: str | None, form: Format, cloud: str | None) -> None:
    """Give a host no new servers; those on it stay.

    \b
    Example: skep host disable cell1-host2 --reason "new memory"
    """
    _print_changed(cloud, name, {"disabled": True, "disabled_reason": reason}, form)


@host.command()
@click.argument("name")
@format_option
@cloud_option
def enable(name: str, form: Format, cloud: str | None) -> None:
    """Let a host get new servers again.

    \b
    Example: skep host enable cell1-host2
    """
    _print_changed(cloud, name, {"disabled": False}, form)


@host.command("force-down")
@click.argument("name")
@click.option("--off", is_flag=True, help="Take it back: the host counts as up when it is heard.")
@format_option
@cloud_option
def force_down(name: str, off: bool, form: Format, cloud: str | None) -> None:
    """Say that a host is down, whatever is heard of it.

    \b
    Example: skep host force-down cell1-host2
    """
    _print_changed(cloud, name, {"forced_down": not off}, form)


FENCING = """Fencing says that host {name} is dead for good: switched off, and not coming back with its guests.
Servers that ran there become ERROR, builds go to other hosts, deletes that wait for it end. Nothing of this is taken
back. Should the host be heard again all the same, it destroys the guests that it has."""


@host.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@format_option
@cloud_option
def fence(name: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Say that a host is dead for good, and give up all that was on it.

    It must be forced down (`skep host force-down`) and silent. Make sure that it is off: its servers may be made anew
    elsewhere.

    \b
    Example: skep host fence cell1-host2 --yes
    """
    if not yes:
        click.echo(FENCING.format(name=name), err=True)
        click.confirm("Is it off?", abort=True, err=True)
    record = connect(cloud).admin("POST", f"/hosts/{quote(name, safe='')}/fence")["host"]
    print_record(record if form == "json" else readable(record), form)


@host.command("release-key")
@click.argument("name")
@format_option
@cloud_option
def release_key(name: str, form: Format, cloud: str | None) -> None:
    """Forget by which key a host's agent signs: the next agent that registers its node is believed.

    For a host whose key was bound by the wrong machine. Stop that one first.

    \b
    Example: skep host release-key cell1-host2
    """
    print_record(connect(cloud).admin("DELETE", f"/hosts/{quote(name, safe='')}/key")["host"], form)


def _print_changed(cloud: str | None, name: str, change: Mapping[str, Any], form: Format) -> None:
    body = {key: value for key, value in change.items() if value is not None}
    record = connect(cloud).admin("PATCH", f"/hosts/{quote(name, safe='')}", body)["host"]
    if form == "json":
        print_record(record, form)
    else:
        click.echo(standing(record))


def standing(record: Mapping[str, Any]) -> str:
    """Return in one line whether a host gets new servers, and why it does not."""
    host, state = record["host"], record["state"]
    down = [{"down": "forced down"}.get(state, state)] if state not in {"up", "unknown"} else []
    if record["disabled"]:
        why = [f"disabled ({record['disabled_reason'] or 'no reason given'})", *down]
        stays = f"; what is on it stays ({counted(record['servers'], 'server')})" if record["servers"] else ""
        return f"{host} is {' and '.join(why)}: it gets no new servers{stays}."
    if down:
        return f"{host} is enabled, but {down[0]}: it gets no new servers."
    if state == "unknown":
        return f"{host} is enabled; no scheduler answers whether it is up."
    return f"{host} is enabled and up: it may get new servers."


def free(row: Mapping[str, Any]) -> str:
    """Return what is free of each resource class, in one line."""
    return ", ".join(f"{amounts['free']} {name}" for name, amounts in row["resources"].items()) or "-"


def readable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host with its resources and claims as lines instead of tables."""
    flat = {key: value for key, value in record.items() if key not in {"resources", "claimed_by"}}
    for name, amounts in record["resources"].items():
        flat[name] = "{free} free of {capacity} ({used} used, {claimed} claimed)".format(**amounts)
    for claim in record.get("claimed_by", []):
        flat[f"claim of {claim['instance']}"] = claim["resources"]
    return flat
