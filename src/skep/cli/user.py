"""`skep user`: getting back in where no password is known any more. All else of users goes through `openstack`."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused
from skep.cli.installed import load_installed
from skep.cli.output import Format, format_option, print_said

if TYPE_CHECKING:
    from skep.config import Config


@click.group()
def user() -> None:
    """Set the password of a user of the embedded identity service.

    \b
    Example: skep user set-password admin
    """


@user.command("set-password")
@click.argument("name")
@click.option("--password-file", type=click.File(), help="Holds the new password (-: standard input); default: random.")
@config_option
@format_option
def set_password(name: str, password_file: TextIO | None, config_file: Path | None, form: Format) -> None:
    """Give a user a new password, on this machine and while the cloud is stopped; no old one is needed.

    It is put into the clouds.yaml of the state directory, and all tokens of the user end.

    \b
    Example: skep user set-password admin
    """
    config = load_installed(config_file).config
    password = secrets.token_urlsafe(18) if password_file is None else password_file.read().rstrip("\r\n")
    if not password:
        raise CommandRefused("the new password is empty")
    file = asyncio.run(_set(config, name, password))
    told = f"The password of {name} is {password} (printed this once)." if password_file is None else "Password set."
    made = {"user": name, "file": str(file), **({"password": password} if password_file is None else {})}
    print_said(f"{told}\nIt is stored in {file}.", made, form)


async def _set(config: Config, name: str, password: str) -> Path:
    """Store the password; return the file that clients find it in. Raises Refused when there is no such user."""
    from skep.database.locations import shown
    from skep.database.opening import open_database, revision_of
    from skep.domain.clock import Clock
    from skep.processes import seeds
    from skep.processes.databases import Places
    from skep.processes.directory import StateDirectory
    from skep.standalone.identity.passwords import Passwords
    from skep.standalone.identity.resetting import set_password as store

    directory = StateDirectory(Path(config.state.directory))
    location = Places(config, directory).api
    if revision_of(location) is None:
        raise CommandRefused(f"there is no API database {shown(location)} yet; `skep up` creates it")
    directory.open()
    hashing = Passwords(cost=config.identity.scrypt_cost)
    database = await open_database("api", location, upgrade=False)
    try:
        if not await store(database, hashing, Clock(), name, password):
            raise CommandRefused(f"there is no user {name}")
        url = f"http://{config.api.bind_host}:{config.identity.port}/v3"
        seeds.keep_password(directory.clouds_yaml, url, name, password)
        return directory.clouds_yaml
    finally:
        hashing.close()
        await database.close()
        directory.close()
