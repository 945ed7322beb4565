"""`credential create|list|delete`, the same below `skep cell` and `skep namespace`."""

from __future__ import annotations

from urllib.parse import quote

import click

from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.remote import cloud_option, connect
from skep.cli.tables import Table

TABLE = Table(
    {
        "id": "Id",
        "description": "Description",
        "created_at": "Created",
        "expires_at": "Expires",
        "last_used_at": "Last used",
    },
    gives_way=("created_at", "last_used_at"),
)


def credential_commands(kind: str, reaches: str, example: str) -> click.Group:
    """Return the commands for credentials of one kind of thing: `cell` or `namespace`.

    `reaches`: what such a credential is good for, in a word or two. `example`: the name of such a thing.
    """
    group = click.Group(
        "credential",
        help=f"Create, list and revoke credentials of programs: each reaches {reaches} only.\n\n"
        f"\b\nExample: skep {kind} credential create {example} --description 'rack 7'",
    )

    @group.command(
        "create", help=f"Create a credential. Its secret is shown once.\n\n{_example(kind, 'create', example)}"
    )
    @click.argument("name")
    @click.option("--description", default="", help="What it is for.")
    @click.option("--expires-in", type=int, metavar="SECONDS", help="When it expires; default: never.")
    @format_option
    @cloud_option
    def create(name: str, description: str, expires_in: int | None, form: Format, cloud: str | None) -> None:
        body = {"description": description, "expires_in": expires_in}
        print_record(connect(cloud).admin("POST", _path(kind, name), body)["credential"], form)

    @group.command("list", help=f"List credentials, without their secrets.\n\n{_example(kind, 'list', example)}")
    @click.argument("name")
    @format_option
    @cloud_option
    def list_(name: str, form: Format, cloud: str | None) -> None:
        print_rows(connect(cloud).admin("GET", _path(kind, name))["credentials"], TABLE, form)

    @group.command("delete", help=f"Revoke a credential.\n\n{_example(kind, 'delete', f'{example} ID')}")
    @click.argument("name")
    @click.argument("credential")
    @format_option
    @cloud_option
    def delete(name: str, credential: str, form: Format, cloud: str | None) -> None:
        path = f"{_path(kind, name)}/{quote(credential, safe='')}"
        print_record(connect(cloud).admin("DELETE", path)["credential"], form)

    return group


def _path(kind: str, name: str) -> str:
    return f"/{kind}s/{quote(name, safe='')}/credentials"


def _example(kind: str, command: str, rest: str) -> str:
    return f"\b\nExample: skep {kind} credential {command} {rest}"
