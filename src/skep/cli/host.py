"""`skep host`: the hosts of a running cloud, as the operator wants them and as placement holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from skep.cli.output import Format, counted, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

TABLE = Table(
    {
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
    },
    gives_way=("claims", "failed_builds", "zone", "free", "servers"),
)


@click.group()
def host() -> None:
    """List, show, enable, disable, fence and unfence hosts.

    State: up; silent (its cell has not heard of it lately); unknown (nobody can tell: no conductor of its cell listens,
    or no scheduler answers); down (an operator forced it); unreported (mapped, but not heard of since placement
    started); deleting (`openstack compute service delete` has begun: it gets no servers, and goes when the builds that
    were on their way to it are placed elsewhere; `skep host enable` takes that back). Of a fenced host it says so, of
    one that is unfit, because too many calls of its driver hang, and of one that is not heard because its agent has
    another key than the one that is bound to it.

    \b
    Example: skep host list --cell cell1
    """


@host.command("list")
@click.option("--cell", metavar="NAME", help="Only hosts of this cell.")
@format_option
@cloud_option
def list_(cell: str | None, form: Format, cloud: str | None) -> None:
    """List hosts with their free resources.

    \b
    Example: skep host list --cell cell1
    """
    query = f"?cell={quote(cell)}" if cell else ""
    rows = connect(cloud).admin("GET", f"/hosts{query}")["hosts"]
    print_rows(
        rows if form == "json" else [{**row, "free": free(row), "state": state_of(row)} for row in rows], TABLE, form
    )


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
@click.option("--reason", metavar="TEXT", help="Why; shown with the host.")
@format_option
@cloud_option
def disable(name: str, reason: str | None, form: Format, cloud: str | None) -> None:
    """Place no new servers on a host; its servers stay.

    \b
    Example: skep host disable cell1-host2 --reason "new memory"
    """
    _print_changed(cloud, name, {"disabled": True, "disabled_reason": reason}, form)


@host.command()
@click.argument("name")
@format_option
@cloud_option
def enable(name: str, form: Format, cloud: str | None) -> None:
    """Place new servers on a host again.

    \b
    Example: skep host enable cell1-host2
    """
    _print_changed(cloud, name, {"disabled": False}, form)


@host.command("force-down")
@click.argument("name")
@click.option("--off", is_flag=True, help="Cancel: the host is up again when it is heard.")
@format_option
@cloud_option
def force_down(name: str, off: bool, form: Format, cloud: str | None) -> None:
    """Force the state of a host to down, even if it is heard.

    \b
    Example: skep host force-down cell1-host2
    """
    _print_changed(cloud, name, {"forced_down": not off}, form)


@host.command()
@click.argument("name")
@format_option
@cloud_option
def plan(name: str, form: Format, cloud: str | None) -> None:
    """Tell where each server of a host would go if it were moved now, and what cannot and why. Nothing is moved.

    Servers of a host that is up would migrate, those of one that is down be evacuated. `--json` has the decision behind
    each.

    \b
    Example: skep host plan cell1-host2
    """
    found = connect(cloud).admin("GET", f"/hosts/{quote(name, safe='')}/plan")["plan"]
    if form == "json":
        print_record(found, form)
        return
    print_rows([{**row, "status": standing_of(row)} for row in found["servers"]], PLAN, form)
    click.echo(planned(found))


PLAN = Table(
    {
        "server": "Server",
        "name": "Name",
        "flavor": "Flavor",
        "status": "State",
        "goes_to": "Goes to",
        "why_not": "Why not",
    },
    gives_way=("flavor", "status", "name"),
)


def standing_of(row: Mapping[str, Any]) -> str:
    """Return the state of a server in a plan, with what is being done to it."""
    return str(row["vm_state"] if row["task_state"] is None else f"{row['vm_state']}, {row['task_state']}")


def planned(found: Mapping[str, Any]) -> str:
    """Return a plan in one line."""
    how = {"migrate": "would migrate", "evacuate": "would be evacuated"}[found["move"]]
    left_out = f", {found['not_planned']} not looked at" if found["not_planned"] else ""
    return f"{counted(found['go'], 'server')} of {found['host']} {how}, {found['stay']} would stay{left_out}."


FENCING = """Fencing states that host {name} is dead for good: switched off, and not coming back with its guests.
Deletes that wait for it end at once. When the grace is over ([conductor] fence_grace_seconds) its servers become ERROR
and builds go to other hosts. Until then `skep host unfence {name}` withdraws the fence; later nothing does: if the
host is heard then, it destroys all its guests."""

UNKNOWN = """--although-unknown: host {name} is fenced although it is unknown whether it is dead. It may run its
servers. If it is heard before the grace is over, the fence is withdrawn; if it is heard later, it destroys all its
guests."""


@host.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--although-unknown",
    is_flag=True,
    help="Also fence if it is unknown whether the host lives (no conductor of its cell listens, no scheduler answers).",
)
@format_option
@cloud_option
def fence(name: str, yes: bool, although_unknown: bool, form: Format, cloud: str | None) -> None:
    """Declare a host dead for good. After the grace its servers are given up.

    The host must be forced down (`skep host force-down`) and silent. Make sure that it is off: its builds go to other
    hosts.

    \b
    Example: skep host fence cell1-host2 --yes
    """
    if although_unknown:
        click.echo(UNKNOWN.format(name=name), err=True)
    if not yes:
        click.echo(FENCING.format(name=name), err=True)
        click.confirm("Is it off?", abort=True, err=True)
    _print_fence(cloud, "POST", name, form, {"although_unknown": True} if although_unknown else None)


@host.command()
@click.argument("name")
@format_option
@cloud_option
def unfence(name: str, form: Format, cloud: str | None) -> None:
    """Withdraw a fence before its grace is over: the host lives, or will again.

    Its servers stay. Servers deleted meanwhile stay deleted: the host destroys their guests when it is heard.
    `skep host force-down HOST --off` allows new servers there.

    \b
    Example: skep host unfence cell1-host2
    """
    _print_fence(cloud, "DELETE", name, form, None)


def _print_fence(cloud: str | None, method: str, name: str, form: Format, body: Mapping[str, Any] | None) -> None:
    record = connect(cloud).admin(method, f"/hosts/{quote(name, safe='')}/fence", body)["host"]
    if form == "json":
        print_record(record, form)
    else:
        click.echo(fence_of(record))


def state_of(row: Mapping[str, Any]) -> str:
    """Return the state of a host for a table: whether it is fenced, whether its agent's key is why it is not up, and
    whether it takes no builds because calls of its driver hang."""
    more = ["fenced"] if row.get("fenced_at") else []
    if row.get("unfit"):
        more.append("unfit")
    if not_believed(row):
        more.append("key not believed")
    return ", ".join((row["state"], *more))


def not_believed(row: Mapping[str, Any]) -> bool:
    """Tell whether a host is not heard because its agent has another key than the one that is bound to it.

    Of a host that is heard some other agent was refused. A cloud of before 0.6.0 does not tell.
    """
    return bool(row.get("key_refused_since")) and row["state"] in {"unreported", "silent", "unknown"}


def why_not_heard(row: Mapping[str, Any]) -> str:
    """Say what makes a host heard whose agent is refused for its key."""
    return f"key not believed since {row['key_refused_since']}; `skep host release-key {row['host']}`"


def fence_of(record: Mapping[str, Any]) -> str:
    """Return in one line whether a host is fenced, and what may still be done about it."""
    host = record["host"]
    if record["fenced_at"] is None:
        return f"{host} is not fenced: its servers stay."
    if record["fence_in_effect"]:
        return f"{host} is fenced: its servers and builds are given up since {record['fence_due_at']}."
    return (
        f"{host} is fenced. Its servers and builds are given up at {record['fence_due_at']}, unless it is heard or "
        f"`skep host unfence {host}` withdraws the fence before."
    )


@host.command("release-key")
@click.argument("name")
@format_option
@cloud_option
def release_key(name: str, form: Format, cloud: str | None) -> None:
    """Release the key that is bound to a host: the next agent that registers its node binds a new one.

    For a host whose key was bound by the wrong machine. Stop that machine's agent first.

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
    if state == "deleting":
        return f"{host} is being deleted: it gets no new servers; `skep host enable {host}` cancels the delete."
    down = [{"down": "forced down"}.get(state, state)] if state not in {"up", "unknown"} else []
    if record["disabled"]:
        why = [f"disabled ({record['disabled_reason'] or 'no reason given'})", *down]
        stays = f"; its servers stay ({counted(record['servers'], 'server')})" if record["servers"] else ""
        return f"{host} is {' and '.join(why)}: it gets no new servers{stays}."
    if not_believed(record):
        return f"{host} is enabled, but {state}: {why_not_heard(record)}."
    if down:
        return f"{host} is enabled, but {down[0]}: it gets no new servers."
    if state == "unknown":
        return f"{host} is enabled; it is unknown whether it is up."
    return f"{host} is enabled and up: it may get new servers."


def free(row: Mapping[str, Any]) -> str:
    """Return what is free of each resource class, in one line."""
    return ", ".join(f"{amounts['free']} {name}" for name, amounts in row["resources"].items()) or "-"


def readable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host with its resources and claims as lines instead of tables."""
    flat = {key: value for key, value in record.items() if key not in {"resources", "claimed_by"}}
    if not_believed(record):
        flat["state"] = f"{record['state']}: {why_not_heard(record)}"
    for name, amounts in record["resources"].items():
        flat[name] = "{free} free of {capacity} ({used} used, {claimed} claimed)".format(**amounts)
    for claim in record.get("claimed_by", []):
        flat[f"claim of {claim['instance']}"] = claim["resources"]
    return flat
