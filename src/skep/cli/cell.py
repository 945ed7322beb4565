"""`skep cell`: the cells of a running cloud."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from skep.cli.credentials import credential_commands
from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect

COLUMNS = {
    "name": "Name",
    "disabled": "Disabled",
    "hosts": "Hosts",
    "hosts_up": "Up",
    "servers": "Servers",
    "reachable": "Reachable",
    "uuid": "UUID",
}


@click.group()
def cell() -> None:
    """List, show, enable, disable and delete cells; make credentials for their hosts.

    A disabled cell gets no new servers; its servers stay reachable. cell0 holds servers that never got a host.

    \b
    Example: skep cell list
    """


@cell.command("list")
@format_option
@cloud_option
def list_(form: Format, cloud: str | None) -> None:
    """List all cells with their hosts and servers.

    \b
    Example: skep cell list --format json
    """
    print_rows(connect(cloud).admin("GET", "/cells")["cells"], COLUMNS, form)


@cell.command()
@click.argument("name")
@format_option
@cloud_option
def show(name: str, form: Format, cloud: str | None) -> None:
    """Show one cell by its name or UUID.

    \b
    Example: skep cell show cell1
    """
    print_record(connect(cloud).admin("GET", f"/cells/{quote(name, safe='')}")["cell"], form)


@cell.command()
@click.argument("name")
@format_option
@cloud_option
def disable(name: str, form: Format, cloud: str | None) -> None:
    """Give a cell no new servers.

    \b
    Example: skep cell disable cell2
    """
    print_record(_change(cloud, name, disabled=True), form)


@cell.command()
@click.argument("name")
@format_option
@cloud_option
def enable(name: str, form: Format, cloud: str | None) -> None:
    """Let a cell get new servers again.

    \b
    Example: skep cell enable cell2
    """
    print_record(_change(cloud, name, disabled=False), form)


@cell.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Its hosts go with it.")
@format_option
@cloud_option
def delete(name: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Remove a disabled cell that holds no server.

    Its database and the directories of its hosts stay; move them away before a cell gets this name again.

    \b
    Example: skep cell delete cell2 --yes
    """
    query = "?hosts=true" if yes else ""
    print_record(connect(cloud).admin("DELETE", f"/cells/{quote(name, safe='')}{query}")["cell"], form)


cell.add_command(credential_commands("cell", "the hosts of that cell", "cell1"))


def _change(cloud: str | None, name: str, *, disabled: bool) -> dict[str, Any]:
    answer = connect(cloud).admin("PATCH", f"/cells/{quote(name, safe='')}", {"disabled": disabled})
    changed: dict[str, Any] = answer["cell"]
    return changed
