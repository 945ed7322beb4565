"""`skep recovery`: databases that went back in time, and what an operator decides about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import Format, counted, format_option, print_json, print_rows, print_said
from skep.cli.remote import Remote, cloud_option, connect
from skep.cli.tables import Table

DATABASES = Table({"name": "Database", "since": "Since", "reason": "Noticed by"})
HOSTS = Table({"host": "Host", "cell": "Cell"})
DECISIONS = Table(
    {"server": "Server", "kind": "Kind", "hosts": "Hosts", "name": "Name", "project": "Project", "doubt": "Doubt"},
    gives_way=("doubt", "project", "name", "kind"),
)


@click.group()
def recovery() -> None:
    """Look at databases that went back in time (restored, or a replica that lagged), and decide what only you can know.

    \b
    Example: skep recovery list
    """


@recovery.command("list")
@format_option
@cloud_option
def list_(form: Format, cloud: str | None) -> None:
    """List databases that recover, hosts that have not told yet what they have, and servers that you decide about.

    \b
    Example: skep recovery list
    """
    found = _look(connect(cloud))
    if form == "json":
        print_json(found)
        return
    for reason in found["unread"]:
        click.echo(f"Not read: {reason}.")
    decisions = found["decisions"]
    if found["databases"]:
        print_rows(found["databases"], DATABASES, form)
    elif decisions:
        click.echo(f"All databases{' that could be read' if found['unread'] else ''} have recovered.")
    elif not found["unread"]:
        click.echo("No database recovers, and nothing is left to decide.")
    if found["hosts"]:
        click.echo("Waiting for:")
        print_rows(found["hosts"], HOSTS, form)
    if decisions:
        click.echo(f"{counted(len(decisions), 'server')} to decide about:")
        print_rows([_row(one) for one in decisions], DECISIONS, form)


@recovery.command()
@click.argument("host")
@click.option("--yes", is_flag=True, help="Do not ask.")
@format_option
@cloud_option
def release(host: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Stop waiting for the report of a host; work that depends on it continues.

    Builds that were under way when the backup was made may be made anew elsewhere. Do this for a host that is off and
    will not come back with guests.

    \b
    Example: skep recovery release cell1-host2 --yes
    """
    if not yes:
        click.confirm(f"Builds that {host} may have ended are repeated elsewhere. Continue?", abort=True, err=True)
    found = connect(cloud).admin("POST", f"/recovery/hosts/{quote(host, safe='')}/release")["recovery"]
    print_said(f"{host} is not waited for any more.", found, form)


@recovery.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option("--host", help="The host whose guest is the server. Required if several hosts have one.")
@click.option("--all", "all_", is_flag=True, help="All servers that have exactly one guest.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several servers.")
@format_option
@cloud_option
def keep(servers: tuple[str, ...], host: str | None, all_: bool, yes: bool, form: Format, cloud: str | None) -> None:
    """Say which guest is the server; where its row or mapping is lost it is made anew.

    A server is named by its id, or by its name where one server alone is listed with it. Other guests of it stay until
    `skep recovery undo`. Of several servers, or of all, each must have one guest only.

    \b
    Examples:
      skep recovery keep 3f0c... --host cell1-host2
      skep recovery keep --all
    """
    if all_ == bool(servers) or (host is not None and len(servers) != 1):
        raise click.UsageError("expected servers or --all; --host needs exactly one server")
    remote = connect(cloud)
    decisions = _look(remote)["decisions"]
    servers = tuple(_id_of(one, decisions) for one in servers)
    if host is not None:
        _decide(remote, form, servers[0], {"keep": host})
        return
    known = {one["server"]: one for one in decisions}
    if missing := [uuid for uuid in servers if uuid not in known]:
        raise CommandRefused(f"no decision is open about {', '.join(missing)}; see `skep recovery list`")
    wanted = [known[uuid] for uuid in servers] or [one for one in known.values() if _guests(one)]
    single = [one for one in wanted if len(_guests(one)) == 1]
    rest = len(wanted) - len(single)
    if servers and rest:
        several = ", ".join(one["server"] for one in wanted if one not in single)
        raise CommandRefused(f"expected one guest of each server, or --host: {several}; see `skep recovery list`")
    if not single:
        raise CommandRefused("no server that is in doubt has exactly one guest; see `skep recovery list`")
    if not yes and (all_ or len(single) > 1):
        click.confirm(f"{counting(single, rest)} Go on?", abort=True, err=True)
    _keep_each(remote, form, single)


@recovery.command()
@click.argument("server")
@click.option("--host", required=True, help="The host whose guest to destroy.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@format_option
@cloud_option
def undo(server: str, host: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Destroy the guest that one host has of a server in doubt.

    \b
    Example: skep recovery undo 3f0c... --host cell1-host3 --yes
    """
    remote = connect(cloud)
    decisions = _look(remote)["decisions"]
    server = _id_of(server, decisions)
    if not yes:
        found = [one for one in decisions if one["server"] == server]
        click.confirm(f"{undoing(server, host, found)} Go on?", abort=True, err=True)
    _decide(remote, form, server, {"undo": host})


@recovery.command("go-on")
@click.argument("server")
@format_option
@cloud_option
def go_on(server: str, form: Format, cloud: str | None) -> None:
    """Say that a server in doubt has no guest anywhere: what is known of it goes on as it stands.

    \b
    Example: skep recovery go-on 3f0c...
    """
    remote = connect(cloud)
    _decide(remote, form, _id_of(server, _look(remote)["decisions"]), {"go_on": True})


def counting(single: Sequence[Mapping[str, Any]], rest: int) -> str:
    """Say what is done to how many servers that have one guest each."""
    hosts = {guest["host"] for one in single for guest in _guests(one)}
    projects = {guest.get("project") for one in single for guest in _guests(one)} - {None}
    new = sum(one["kind"] == "guest_unknown" for one in single)
    of = f", of {counted(len(projects), 'project')}" if projects else ""
    lines = [f"Kept as servers: {counted(len(single), 'guest')} on {counted(len(hosts))}{of}."]
    if new:
        lines.append(f"Of them no database knows {counted(new, 'server')}: restored, and charged to the project.")
    if rest:
        lines.append(f"{counted(rest, 'server')} with several guests {'is' if rest == 1 else 'are'} left to you.")
    return " ".join(lines)


def undoing(server: str, host: str, decisions: Iterable[Mapping[str, Any]]) -> str:
    """Say which guest is destroyed, and what is left of its server."""
    guests = [guest for one in decisions for guest in _guests(one)]
    mine = [guest for guest in guests if guest["host"] == host]
    name = next((guest["name"] for guest in [*mine, *guests] if guest.get("name")), None)
    called = f"{name} ({server})" if name else server
    attempt = f" (attempt {max(guest['attempt'] for guest in mine)})" if mine else ""
    others = sorted({guest["host"] for guest in guests} - {host})
    left = f"Guests on {', '.join(others)} stay." if others else "No other host has reported a guest of it."
    return f"The guest of server {called} on {host}{attempt} is destroyed with its disks. {left}"


def _look(remote: Remote) -> Mapping[str, Any]:
    found = remote.admin("GET", "/recovery")["recovery"]
    return {"decisions": [], **found}


def _guests(decision: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the guests of a server in doubt that a host still has."""
    return [one for one in decision["guests"] if one["phase"] not in ("deleted", "undo")]


def _id_of(said: str, decisions: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of a server by its name, as one host at least remembers it; any other word is taken as an id.

    Raises CommandRefused for the name of several.
    """
    if any(one["server"] == said for one in decisions):
        return said
    named = sorted({one["server"] for one in decisions if any(guest.get("name") == said for guest in one["guests"])})
    if len(named) > 1:
        raise CommandRefused(f"several servers are named {said}, give the id of one: {', '.join(named)}")
    return named[0] if named else said


def _row(decision: Mapping[str, Any]) -> dict[str, Any]:
    def each(key: str) -> list[Any]:
        return list(dict.fromkeys(one[key] for one in decision["guests"] if one.get(key)))

    return {**decision, "hosts": each("host"), "name": each("name"), "project": each("project")}


def _keep_each(remote: Remote, form: Format, decisions: Sequence[Mapping[str, Any]]) -> None:
    """Keep the only guest of each; what is refused does not keep the others from it."""
    done: list[dict[str, Any]] = []
    refused: list[str] = []
    for one in decisions:
        [guest] = _guests(one)
        try:
            done.append(_decided(remote, one["server"], {"keep": guest["host"]}))
        except Failed as error:
            refused.append(f"{one['server']}: {error.message}")
    text = "\n".join(f"{one['id']}: {one['outcome']}." for one in done)
    print_said(text, {"servers": done, "refused": refused}, form)
    if refused:
        raise Failed(f"{len(refused)} of {len(decisions)} were refused: {'; '.join(refused)}")


def _decide(remote: Remote, form: Format, server: str, decision: dict[str, object]) -> None:
    done = _decided(remote, server, decision)
    print_said(f"{done['id']}: {done['outcome']}.", done, form)


def _decided(remote: Remote, server: str, decision: dict[str, object]) -> dict[str, Any]:
    done: dict[str, Any] = remote.admin("POST", f"/recovery/servers/{quote(server, safe='')}", decision)["server"]
    return done
