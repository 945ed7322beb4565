"""`skep server`: servers of a running cloud, why each is where it is, and their consoles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from skep.cli import explain as words
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_json, print_record, print_rows
from skep.cli.remote import Remote, cloud_option, connect
from skep.cli.tables import Table

TABLE = Table(
    {
        "id": "ID",
        "name": "Name",
        "status": "Status",
        "task": "Task",
        "zone": "Zone",
        "host": "Host",
        "created": "Created",
    },
    gives_way=("created", "task", "zone"),
)

ACTIONS = Table(
    {
        "action": "Action",
        "result": "Result",
        "started": "Started",
        "updated": "Last changed",
        "request": "Request",
        "user": "User",
    },
    gives_way=("user", "updated"),
)


@click.group()
def server() -> None:
    """List and show servers, explain where they landed and why, tell what was done to them.

    \b
    Example: skep server explain one
    """


@server.command("list")
@click.option("--mine", is_flag=True, help="Only servers of your project; without it admins see all servers.")
@click.option("--status", metavar="STATUS", help="Only servers in this status, such as ERROR.")
@click.option("--host", metavar="NAME", help="Only servers on this host.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Most servers to list.")
@format_option
@cloud_option
def list_(mine: bool, status: str | None, host: str | None, limit: int, form: Format, cloud: str | None) -> None:
    """List servers, newest first.

    \b
    Example: skep server list --status ERROR
    """
    query = {"status": status, "host": host, "limit": str(min(limit, 1000))}
    given = {key: value for key, value in query.items() if value is not None}
    remote = connect(cloud)
    path = "/servers/detail"
    first = remote.compute(f"{path}?{urlencode(given)}") if mine else remote.of_all_projects(path, given)
    print_rows(_pages(remote, first, limit), TABLE, form)
    if not (mine or remote.sees_all):
        click.echo("skep: these are the servers of your project; to see those of all needs the role admin", err=True)


@server.command()
@click.argument("server_id", metavar="ID")
@format_option
@cloud_option
def show(server_id: str, form: Format, cloud: str | None) -> None:
    """Show one server by its id or name: state, whereabouts, attempts.

    \b
    Example: skep server show one
    """
    remote = connect(cloud)
    uuid = remote.server_id(server_id)
    found = remote.compute(f"/servers/{uuid}")["server"]
    placement = remote.admin("GET", f"/servers/{uuid}/placement")["placement"]
    record = {
        **_row(found),
        "cell": placement.get("cell"),
        "project": found["tenant_id"],
        "flavor": placement["flavor"],
        "asks_for": placement["asks_for"],
        "attempts": len(placement["attempts"]),
        "launched": placement["launched_at"],
        "fault": placement["fault"],
    }
    print_record(record, form)


@server.command()
@click.argument("server_id", metavar="ID")
@format_option
@cloud_option
def explain(server_id: str, form: Format, cloud: str | None) -> None:
    """Tell the life of a server: each action, each attempt on a host and the decision behind it, in order.

    So it says why a server is where it is, or nowhere. Owners see how many hosts were left after each stage; admins see
    the hosts, and what they say of failures. Admins may name a deleted server too.

    \b
    Example: skep server explain one
    """
    remote = connect(cloud)
    placement = remote.admin("GET", f"/servers/{remote.server_id(server_id, deleted=True)}/placement")["placement"]
    if form == "json":
        print_json(placement)
    else:
        click.echo(words.text(placement))


@server.command("actions")
@click.argument("server_id", metavar="ID")
@click.option("--events", is_flag=True, help="Show the events of each action below it.")
@format_option
@cloud_option
def actions_(server_id: str, events: bool, form: Format, cloud: str | None) -> None:
    """List what was done to a server, newest first, and how it went.

    Owners see why an action failed, admins also which event did and on which host; they may name a deleted server too.

    \b
    Example: skep server actions one --events
    """
    remote = connect(cloud)
    path = f"/servers/{remote.server_id(server_id, deleted=True)}/os-instance-actions"
    done = [_action(one) for one in _listed_actions(remote, path)]
    if events:
        for one in done:
            one["events"] = remote.compute(f"{path}/{one['request']}")["instanceAction"].get("events", [])
    if not events or form == "json":
        print_rows(done, ACTIONS, form)
        return
    for one in done:
        failed = one["result"] not in (None, "Success")
        click.echo(f"{one['started']}  {one['action']}{'  failed' if failed else ''}  {one['request']}")
        if failed and one["result"] != words.UNTOLD and not any(event.get("details") for event in one["events"]):
            click.echo(f"  {one['result']}")
        for event in one["events"]:
            click.echo(f"  {words.event(event)}")


@server.command()
@click.argument("server_id", metavar="ID")
@cloud_option
def console(server_id: str, cloud: str | None) -> None:
    """Attend to the serial line of a server that runs: type, and see what it says. Ctrl-] leaves it.

    Input that is no terminal is sent to its end, and the console left once it has been silent for two seconds.

    \b
    Example: skep server console one
    """
    from skep.cli.serial_console import attend

    remote = connect(cloud)
    asked = {"remote_console": {"protocol": "serial", "type": "serial"}}
    path = f"/servers/{remote.server_id(server_id)}"
    _running(remote.compute(path)["server"])
    attend(remote.ask_compute(f"{path}/remote-consoles", asked)["remote_console"]["url"])


@server.command(context_settings={"ignore_unknown_options": True})
@click.argument("server_id", metavar="ID")
@click.argument("command", nargs=-1, metavar="[COMMAND]...", type=click.UNPROCESSED)
@click.option("-i", "--key", type=click.Path(path_type=Path), help="File of the private key; else those of ssh itself.")
@click.option("--user", default="root", show_default=True, help="User inside.")
@cloud_option
def ssh(server_id: str, command: tuple[str, ...], key: Path | None, user: str, cloud: str | None) -> None:
    """Log in to a server, or run a command in it: by the loopback port of this machine that leads to it, or else by its
    floating address.

    Servers of the driver `libvirt` in user mode have such a port while they run. To know it needs the role admin.

    \b
    Example: skep server ssh -i .skep/first-key one hostname
    """
    from skep.cli.logging_in import ADDRESS, BEFORE_ONE_FORM, SSH_PORT, floating_address, ssh_command

    remote = connect(cloud)
    path = f"/servers/{remote.server_id(server_id)}"
    found = _running(remote.compute(path)["server"])
    port = remote.compute(f"{path}/diagnostics", version=BEFORE_ONE_FORM).get(SSH_PORT)
    address = ADDRESS if port is not None else floating_address(found)
    if address is None:
        raise Failed(f"{server_id}: neither a loopback port nor a floating address leads to it")
    words = ssh_command(port, user, key, command, address)
    try:
        os.execvp(words[0], words)  # noqa: S606 - the terminal is ssh's from now on
    except OSError as error:
        raise Failed(f"{words[0]}: {error.strerror}") from error


def _running(found: dict[str, Any]) -> dict[str, Any]:
    """Return a server that is not switched off. Raises Failed, which says how to start it."""
    if found["status"] == "SHUTOFF":
        raise Failed(f"{found['name']} is switched off; start it: openstack server start {found['id']}")
    return found


def _listed_actions(remote: Remote, path: str) -> list[dict[str, Any]]:
    """Return the actions of all pages."""
    answer = remote.compute(path)
    listed: list[dict[str, Any]] = answer["instanceActions"]
    while following := next((link["href"] for link in answer.get("links", ()) if link["rel"] == "next"), None):
        answer = remote.compute(following)
        listed += answer["instanceActions"]
    return listed


def _action(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "action": found["action"],
        "result": found["message"] or ("Success" if found["updated_at"] != found["start_time"] else None),
        "started": str(found["start_time"])[:19],
        "updated": str(found["updated_at"])[:19],
        "request": found["request_id"],
        "user": found["user_id"],
    }


def _pages(remote: Remote, answer: Any, limit: int) -> list[dict[str, Any]]:
    """Return the servers of a first page and of those behind it."""
    rows: list[dict[str, Any]] = []
    while True:
        rows += [_row(one) for one in answer["servers"]]
        links = answer.get("servers_links", [])
        following = next((link["href"] for link in links if link["rel"] == "next"), None)
        if following is None or len(rows) >= limit:
            return rows[:limit]
        answer = remote.compute(following)


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": found["id"],
        "name": found.get("name"),
        "status": found["status"],
        "task": found.get("OS-EXT-STS:task_state"),
        "zone": found.get("OS-EXT-AZ:availability_zone") or None,
        "host": found.get("OS-EXT-SRV-ATTR:host"),
        "created": found.get("created"),
    }
