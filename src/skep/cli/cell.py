"""`skep cell`: the cells of a running cloud."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click

from skep.cli import enrolment_tokens
from skep.cli.credentials import credential_commands
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

POLL_SECONDS = 2.0
"""Between two looks at a cell that is drained."""

GONE_SECONDS = 30.0
"""How long the end of a deletion is waited for."""

TABLE = Table(
    {
        "name": "Name",
        "disabled": "Disabled",
        "hosts": "Hosts",
        "hosts_up": "Up",
        "servers": "Servers",
        "reachable": "Reachable",
        "uuid": "UUID",
    },
    gives_way=("uuid",),
)


@click.group()
def cell() -> None:
    """List, show, create, enable, disable, drain and delete cells; make credentials for their hosts.

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
    rows = connect(cloud).admin("GET", "/cells")["cells"]
    deleting = [{**row, "disabled": "deleting" if row["deleting_at"] else row["disabled"]} for row in rows]
    print_rows(rows if form == "json" else deleting, TABLE, form)


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
@click.option("--database-url", default="", help="Its database, which must exist; default: as configured.")
@click.option("--transport-url", default="", help="Its own NATS servers; default: the shared ones.")
@click.option("--disabled", is_flag=True, help="Place no servers there until the cell is enabled.")
@format_option
@cloud_option
def create(name: str, database_url: str, transport_url: str, disabled: bool, form: Format, cloud: str | None) -> None:
    """Create a cell in a running cloud: its schema and its row. It gets servers once it has a host.

    Passwords in URLs are stored encrypted and never shown.

    \b
    Example: skep cell create cell3 --database-url postgresql://skep_cell3@db3/skep_cell3
    """
    body = {"name": name, "database_url": database_url, "transport_url": transport_url, "disabled": disabled}
    print_record(connect(cloud).admin("POST", "/cells", body)["cell"], form)


@cell.command("set")
@click.argument("name")
@click.option("--database-url", help="New address or password of its database; empty: as configured.")
@click.option("--transport-url", help="Its own NATS servers; empty: the shared ones.")
@format_option
@cloud_option
def set_(name: str, database_url: str | None, transport_url: str | None, form: Format, cloud: str | None) -> None:
    """Change the address or password by which a running cloud reaches a cell.

    \b
    Example: skep cell set cell3 --database-url postgresql://skep_cell3:NEW@db3/skep_cell3
    """
    given = {"database_url": database_url, "transport_url": transport_url}
    body = {key: value for key, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("expected --database-url, --transport-url or both")
    print_record(_change(cloud, name, body), form)


@cell.command()
@click.argument("name")
@format_option
@cloud_option
def disable(name: str, form: Format, cloud: str | None) -> None:
    """Place no new servers in a cell.

    \b
    Example: skep cell disable cell2
    """
    print_record(_change(cloud, name, {"disabled": True}), form)


@cell.command()
@click.argument("name")
@format_option
@cloud_option
def enable(name: str, form: Format, cloud: str | None) -> None:
    """Place new servers in a cell again.

    \b
    Example: skep cell enable cell2
    """
    print_record(_change(cloud, name, {"disabled": False}), form)


@cell.command()
@click.argument("name")
@click.option("--wait", type=click.IntRange(min=0), default=0, metavar="SECONDS", help="How long to wait until empty.")
@format_option
@cloud_option
def drain(name: str, wait: int, form: Format, cloud: str | None) -> None:
    """Place no new servers in a cell and wait until it is empty. Exit status 0: empty, 1: servers are left.

    No server is moved or deleted: the cell empties as owners delete their servers.

    \b
    Example: skep cell drain cell2 --wait 3600 && skep cell delete cell2 --yes
    """
    record = _change(cloud, name, {"disabled": True})
    deadline = time.monotonic() + wait
    while record["servers_mapped"] and time.monotonic() < deadline:
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        record = connect(cloud).admin("GET", f"/cells/{quote(name, safe='')}")["cell"]
    print_record(record, form)
    if record["servers_mapped"]:
        raise Failed(f"cell {record['name']} still has {record['servers_mapped']} servers")


@cell.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Remove its hosts, too.")
@format_option
@cloud_option
def delete(name: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Remove a disabled cell that holds no server.

    Servers on their way there are placed elsewhere first. Its database and the
    directories of its hosts stay; move them away before a cell gets this name again.

    \b
    Example: skep cell delete cell2 --yes
    """
    query = "?hosts=true" if yes else ""
    remote = connect(cloud)
    record = remote.admin("DELETE", f"/cells/{quote(name, safe='')}{query}")["cell"]
    deadline = time.monotonic() + GONE_SECONDS
    while not record["deleted"] and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        there = {cell["uuid"] for cell in remote.admin("GET", "/cells")["cells"]}
        record = {**record, "deleted": record["uuid"] not in there}
    print_record(record, form)
    if not record["deleted"]:
        raise Failed(
            f"cell {name} is being deleted; it is removed when the servers on their way to it are placed elsewhere"
        )


cell.add_command(enrolment_tokens.create)
cell.add_command(enrolment_tokens.list_)
cell.add_command(enrolment_tokens.revoke)
cell.add_command(credential_commands("cell", "the hosts of that cell", "cell1"))


def _change(cloud: str | None, name: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = connect(cloud).admin("PATCH", f"/cells/{quote(name, safe='')}", body)
    changed: dict[str, Any] = answer["cell"]
    return changed
