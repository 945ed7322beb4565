"""`skep cell enrolment-token` and its friends: tokens by which machines become hosts of a cell."""

from __future__ import annotations

import re
from urllib.parse import quote

import click

from skep.cli.failures import CommandRefused
from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

TABLE = Table(
    {
        "id": "Id",
        "description": "Description",
        "uses_left": "Uses left",
        "uses": "Of",
        "created_at": "Created",
        "expires_at": "Expires",
    },
    gives_way=("created_at", "uses"),
)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> int:
    """Return a time such as `90s`, `30m`, `24h` or `7d` in seconds. Raises Refused when it is none."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    if found is None:
        raise CommandRefused(f"--expires: expected a time such as 30m, 24h or 7d, got {text[:80]!r}")
    return int(found[1]) * UNITS[found[2]]


@click.command("enrolment-token")
@click.argument("name")
@click.option("--uses", type=int, default=1, show_default=True, help="How many machines it enrols.")
@click.option("--expires", default="24h", show_default=True, metavar="TIME", help="When it expires: 30m, 24h, 7d.")
@click.option("--description", default="", help="What it is for.")
@format_option
@cloud_option
def create(name: str, uses: int, expires: str, description: str, form: Format, cloud: str | None) -> None:
    """Create a token by which machines become hosts of a cell (`skep enrol`). Its secret is shown once.

    \b
    Example: skep cell enrolment-token cell1 --uses 40 --expires 24h --description 'rack 7'
    """
    body = {"uses": uses, "expires_in": seconds_of(expires), "description": description}
    print_record(connect(cloud).admin("POST", _path(name), body)["enrolment_token"], form)


@click.command("enrolment-tokens")
@click.argument("name")
@format_option
@cloud_option
def list_(name: str, form: Format, cloud: str | None) -> None:
    """List the enrolment tokens of a cell, without their secrets.

    \b
    Example: skep cell enrolment-tokens cell1
    """
    print_rows(connect(cloud).admin("GET", _path(name))["enrolment_tokens"], TABLE, form)


@click.command("revoke-enrolment-token")
@click.argument("name")
@click.argument("token")
@format_option
@cloud_option
def revoke(name: str, token: str, form: Format, cloud: str | None) -> None:
    """Revoke an enrolment token by its id; hosts enrolled with it stay.

    \b
    Example: skep cell revoke-enrolment-token cell1 ID
    """
    answer = connect(cloud).admin("DELETE", f"{_path(name)}/{quote(token, safe='')}")
    print_record(answer["enrolment_token"], form)


def _path(name: str) -> str:
    return f"/cells/{quote(name, safe='')}/enrolment-tokens"
