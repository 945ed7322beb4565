"""`skep migration`: moves of servers to other hosts, and how each went."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import click

from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.remote import Remote, cloud_option, connect
from skep.cli.tables import Table
from skep.domain.server_migrations import LIVE_IN_PROGRESS

PATH = "/os-migrations"
PAGE = 1000
MOST = 1_000_000
"""Migrations that are looked through for one."""

TABLE = Table(
    {
        "id": "ID",
        "server": "Server",
        "type": "Type",
        "status": "Status",
        "source": "Source",
        "destination": "Destination",
        "created": "Created",
    },
    gives_way=("created", "type"),
)


@click.group()
def migration() -> None:
    """List and show migrations: moves of servers to other hosts. Needs the role admin.

    \b
    Example: skep migration list
    """


@migration.command("list")
@click.option("--server", metavar="ID", help="Only those of this server, by its id or name.")
@click.option("--host", metavar="NAME", help="Only those from or to this host.")
@click.option("--status", metavar="STATUS", help="Only those in this status, such as finished.")
@click.option("--limit", type=click.IntRange(1), default=PAGE, show_default=True, help="Most migrations to list.")
@format_option
@cloud_option
def list_(
    server: str | None, host: str | None, status: str | None, limit: int, form: Format, cloud: str | None
) -> None:
    """List migrations, newest first.

    \b
    Example: skep migration list --host host1
    """
    remote = connect(cloud)
    named = None if server is None else remote.server_id(server, deleted=True)
    query = {"instance_uuid": named, "host": host, "status": status, "limit": str(min(limit, PAGE))}
    print_rows(_pages(remote, {key: value for key, value in query.items() if value is not None}, limit), TABLE, form)


@migration.command()
@click.argument("migration_id", metavar="ID")
@format_option
@cloud_option
def show(migration_id: str, form: Format, cloud: str | None) -> None:
    """Show one migration by its id; of a live one that is in progress also how far it is.

    \b
    Example: skep migration show 70a599e0-31e7-49b7-b260-868f441e862b
    """
    remote = connect(cloud)
    for one in _pages(remote, {"limit": str(PAGE)}, MOST):
        if one["id"] == migration_id:
            print_record({**one, **_progress(remote, one)}, form)
            return
    raise Failed(f"there is no migration {migration_id}")


def _pages(remote: Remote, query: dict[str, str], limit: int) -> list[dict[str, Any]]:
    """Return the migrations of a first page and of those behind it."""
    rows: list[dict[str, Any]] = []
    answer = remote.compute(f"{PATH}?{urlencode(query)}")
    while True:
        rows += [_row(one) for one in answer["migrations"]]
        links = answer.get("migrations_links", [])
        following = next((link["href"] for link in links if link["rel"] == "next"), None)
        if following is None or len(rows) >= limit:
            return rows[:limit]
        answer = remote.compute(following)


def _progress(remote: Remote, one: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of a live migration that is in progress, once its source has told of them."""
    if one["type"] != "live-migration" or one["status"] not in LIVE_IN_PROGRESS:
        return {}
    listed = remote.compute(f"/servers/{one['server']}/migrations")["migrations"]
    mine: dict[str, Any] = next((found for found in listed if found["uuid"] == one["id"]), {})
    return {key: value for key, value in mine.items() if key.endswith("_bytes") and value is not None}


def _row(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": found["uuid"],
        "server": found["instance_uuid"],
        "type": found["migration_type"],
        "status": found["status"],
        "source": found["source_compute"],
        "destination": found["dest_compute"],
        "created": found["created_at"],
    }
