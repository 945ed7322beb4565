"""`skep capacity`: how many more servers of a flavor a running cloud has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import click

from skep.cli.explain import amounts
from skep.cli.output import Format, counted, format_option, print_json, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

TABLE = Table(
    {
        "kind": "Part",
        "name": "Name",
        "servers": "More servers",
        "hosts": "Hosts with room",
        "suitable": "Suitable hosts",
    },
    gives_way=("suitable",),
)
KINDS = {"zones": "zone", "cells": "cell", "aggregates": "aggregate"}
SHOWN_HOSTS = 10

Record = Mapping[str, Any]


@click.command()
@click.option("--flavor", required=True, metavar="F", help="Id or name of the flavor.")
@click.option("--az", "zone", metavar="Z", help="Only hosts of this availability zone.")
@click.option("--cell", metavar="NAME", help="Only hosts of this cell.")
@click.option(
    "--keep-free-hosts",
    "keep",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Leave out the N emptiest suitable hosts, as spares for failing hosts.",
)
@format_option
@cloud_option
def capacity(flavor: str, zone: str | None, cell: str | None, keep: int, form: Format, cloud: str | None) -> None:
    """Count how many more servers of a flavor fit, where, and which resource runs out first.

    Servers are counted as placement would place them one after the other, by the filters that it uses; nothing is
    claimed. A host may be in several aggregates, so those add up to more.

    \b
    Example: skep capacity --flavor m1.small --az nova --keep-free-hosts 2
    """
    given = {"flavor": flavor, "availability_zone": zone, "cell": cell, "keep_free_hosts": str(keep) if keep else None}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    found = connect(cloud).admin("GET", f"/capacity?{query}")["capacity"]
    if form == "json":
        print_json(found)
        return
    for line in text(found):
        click.echo(line)
    rows = [{"kind": kind, **room} for key, kind in KINDS.items() for room in found[key]]
    if rows:
        print_rows(rows, TABLE, form)


def text(found: Record) -> Iterator[str]:
    """Return what is known beside the parts of the cloud, line by line."""
    servers, hosts, suitable = found["servers"], found["hosts"], found["suitable"]
    yield f"{counted(servers, 'more server')} of {found['flavor']} fit{'s' if servers == 1 else ''}"
    yield f"  each takes {amounts(found['asked'])}"
    yield f"  {counted(found['considered'])} considered"
    yield from (f"  {stage['left']:>5} left by {stage['stage']}" for stage in found["stages"])
    if suitable:
        yield f"  {hosts} of {counted(suitable, 'suitable host')} ha{'s' if hosts == 1 else 've'} room"
    else:
        yield f"  no {'other ' if found['kept_free'] else ''}host is suitable"
    if found.get("too_small"):
        small = sorted(found["too_small"].items(), key=lambda item: (-item[1], item[0]))
        yield f"  too small even when empty: {', '.join(f'{name} on {counted(count)}' for name, count in small)}"
    if found["kept_free"]:
        more = len(found["kept_free"]) - SHOWN_HOSTS
        names = ", ".join(found["kept_free"][:SHOWN_HOSTS])
        yield f"  kept free: {names}{f' and {more} more' if more > 0 else ''}"
    if found["not_ready"]:
        yield f"  nothing is counted on {counted(found['not_ready'])} of which it is not known what is free"
    if found["limits"]:
        yield "  what runs out first on the suitable hosts:"
        for name, count in sorted(found["limits"].items(), key=lambda item: (-item[1], item[0])):
            yield f"  {count:>5} {name}"
        yield f"  free on them then: {amounts(found['left_over'])}"
    if found["not_counted"]:
        yield f"  fewer may fit: how many {', '.join(found['not_counted'])} would let through is not counted"
