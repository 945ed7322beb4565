"""`skep namespace`: what other services tell of hosts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import click
import msgspec

from skep.cli.credentials import credential_commands
from skep.cli.failures import CommandRefused
from skep.cli.output import Format, format_option, formats, print_record, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

TABLE = Table({"name": "Name", "records": "Records", "registered": "Of another service"})
STATES = Table({"key": "Key", "state": "State", "nodes": "Nodes", "incarnation": "Incarnation", "seq": "Seq"})
PAGE = 500


@click.group()
def namespace() -> None:
    """List, register and delete namespaces, in which other services publish facts about hosts for placement.

    \b
    Example: skep namespace list
    """


@namespace.command("list")
@format_option
@cloud_option
def list_(form: Format, cloud: str | None) -> None:
    """List all namespaces of the host states with the number of their records.

    \b
    Example: skep namespace list
    """
    print_rows(connect(cloud).admin("GET", "/namespaces")["namespaces"], TABLE, form)


@namespace.command()
@click.argument("name")
@formats("json")
@cloud_option
def show(name: str, form: Format, cloud: str | None) -> None:
    """Show the schema of a namespace, in the form that `set` takes.

    \b
    Example: skep namespace show volume > volume.json
    """
    print_record(connect(cloud).admin("GET", _path(name))["namespace"]["schema"], form)


@namespace.command("set")
@click.argument("name")
@click.argument("schema", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@format_option
@cloud_option
def set_(name: str, schema: Path, form: Format, cloud: str | None) -> None:
    """Register a namespace, or widen its schema. SCHEMA is a JSON file.

    \b
    Example: skep namespace set volume volume.json
    """
    try:
        body = msgspec.json.decode(schema.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandRefused(f"{schema} is no JSON: {error}") from error
    print_record(connect(cloud).admin("PUT", _path(name), body)["namespace"], form)


@namespace.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Remove its states and credentials, too.")
@format_option
@cloud_option
def delete(name: str, yes: bool, form: Format, cloud: str | None) -> None:
    """Remove a namespace with its states and credentials.

    \b
    Example: skep namespace delete volume --yes
    """
    if not yes:
        raise CommandRefused(f"the states and credentials of {name} are deleted with it: add --yes")
    print_record(connect(cloud).admin("DELETE", _path(name))["namespace"], form)


@namespace.command()
@click.argument("name")
@format_option
@cloud_option
def states(name: str, form: Format, cloud: str | None) -> None:
    """List the states of a namespace and their nodes.

    \b
    Example: skep namespace states volume --format json
    """
    remote = connect(cloud)
    found = []
    query: dict[str, str | int] = {"limit": PAGE}
    while True:
        page = remote.admin("GET", f"{_path(name)}/states?{urlencode(query)}")
        found += page["states"]
        if page["next_marker"] is None:
            break
        query["marker"] = page["next_marker"]
    print_rows(found, STATES, form)


namespace.add_command(credential_commands("namespace", "the states of that namespace", "volume"))


def _path(name: str) -> str:
    return f"/namespaces/{quote(name, safe='')}"
