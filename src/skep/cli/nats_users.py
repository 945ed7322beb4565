"""`skep nats credentials`, `users`, `revoke`, `update`: NATS servers on which each host has a user of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused, Failed
from skep.cli.installed import load_installed
from skep.cli.output import Format, format_option, print_record, print_rows
from skep.cli.tables import Table

if TYPE_CHECKING:
    from skep.config import Config
    from skep.database import Connection
    from skep.database.engine import Database
    from skep.domain.cells import Cell, HostMapping
    from skep.processes.directory import StateDirectory
    from skep.transport.nats_accounts import NatsListening

ResultT = TypeVar("ResultT")

TABLE = Table(
    {"host": "Host", "user": "User", "revoked_at": "Revoked", "cell": "Cell", "node": "Node"},
    gives_way=("node", "cell"),
)


@click.command()
@click.argument("role", type=click.Choice(("above", "cell-conductor", "host")))
@click.option("--cell", default="", metavar="NAME", help="The cell; for cell-conductor.")
@click.option("--host", default="", metavar="NAME", help="The host; for host.")
@config_option
def credentials(role: str, cell: str, host: str, config_file: Path | None) -> None:
    """Print the credentials of a role, for `transport.credentials_file`. They are secret: keep them in a 0600 file.

    above is API, super conductors and schedulers. A host gets its own when it is enrolled; printed here they are new
    ones, and hosts read them with `transport.inbox` as the first line says.

    \b
    Example: skep nats credentials above > above.creds
             skep nats credentials cell-conductor --cell cell1 > cell1.creds
             skep nats credentials host --host node17 > nats.creds
    """
    from skep.domain.clock import SECOND, Clock
    from skep.processes.nats_accounts import by_name
    from skep.processes.nats_users import host_user, keys, known
    from skep.transport.nats_users import credentials_above, credentials_of_conductors

    if (role == "cell-conductor") != bool(cell) or (role == "host") != bool(host):
        raise CommandRefused("a cell-conductor needs --cell NAME, a host --host NAME, above neither")
    config, directory = _installed(config_file)
    now = Clock().now()
    if role == "above":
        click.echo(credentials_above(keys(directory), now // SECOND), nl=False)
    elif role == "cell-conductor":
        cells, _ = _read(config, known)
        found = by_name({one.name: one for one in cells}, cell)
        text = credentials_of_conductors(keys(directory), found, now // SECOND, config.transport.prefix)
        click.echo(text, nl=False)
    else:
        mapping, of_cell, second = _read(config, partial(_host, name=host, now=now))
        user = host_user(config, directory, of_cell, mapping.node, mapping.host, second)
        click.echo(f"# transport.inbox of host {mapping.host}: {user.inbox}\n{user.credentials}", nl=False)


@click.command()
@format_option
@config_option
def users(form: Format, config_file: Path | None) -> None:
    """List the NATS user of each host: NATS servers name it so in their logs.

    \b
    Example: skep nats users
    """
    from skep.database.api import host_mappings, revoked_nats_users
    from skep.domain.clock import isoformat
    from skep.processes.nats_users import keys, known
    from skep.transport.nats_users import host_user

    config, directory = _installed(config_file)
    if not directory.nats_key.exists():
        raise CommandRefused(f"{directory.nats_key} is not there: no user follows from it; `skep nats config` makes it")
    signing = keys(directory)

    def unit(connection: Connection) -> list[dict[str, Any]]:
        cells = {one.uuid: one.name for one in known(connection)[0]}
        revoked = {
            node: one for nodes in revoked_nats_users.by_cell(connection).values() for node, one in nodes.items()
        }
        there = {one.node: (one.host, one.cell) for one in host_mappings.every(connection)}
        there = {node: (one.host, one.cell) for node, one in revoked.items()} | there
        return [
            {
                "host": host,
                "cell": cells.get(cell, cell),
                "node": node,
                "user": signing.user(host_user(node)),
                "revoked_at": isoformat(revoked[node].revoked_at) if node in revoked else None,
            }
            for node, (host, cell) in sorted(there.items(), key=lambda one: one[1])
        ]

    print_rows(_read(config, unit), TABLE, form)


@click.command()
@click.argument("host")
@format_option
@config_option
def revoke(host: str, form: Format, config_file: Path | None) -> None:
    """Revoke the NATS credentials of a host; NATS servers end its connection.

    Enrolling it again gives it new credentials. Its guests and its servers stay as they are. To delete a compute
    service revokes its host, too.

    \b
    Example: skep nats revoke node17
    """
    from skep.database.api import revoked_nats_users
    from skep.database.api.revoked_nats_users import Revoked
    from skep.domain.clock import Clock, isoformat

    config, directory = _installed(config_file)
    now = Clock().now()

    def unit(connection: Connection) -> HostMapping:
        mapping, _, _ = _host(connection, host, now)
        new = Revoked(node=mapping.node, host=mapping.host, cell=mapping.cell, revoked_at=now)
        revoked_nats_users.add(connection, new)
        return mapping

    mapping = asyncio.run(_with_database(config, lambda database: database.write(unit)))
    _tell(config, directory, "the revocation is stored; super conductors send it to the NATS servers")
    print_record({"host": mapping.host, "node": mapping.node, "revoked_at": isoformat(now)}, form)


@click.command()
@format_option
@config_option
def update(form: Format, config_file: Path | None) -> None:
    """Publish all accounts to the NATS servers now. Super conductors do so within seconds of each change.

    \b
    Example: skep nats update
    """
    config, directory = _installed(config_file)
    print_record({"accounts": _tell(config, directory, "")}, form)


def config_with_host_users(
    config: Config, directory: StateDirectory, listening: NatsListening, accounts_dir: str
) -> str:
    """Return the configuration of the servers that all cells share, on which each host has a user of its own."""
    from skep.domain.clock import SECOND, Clock
    from skep.processes.nats_users import keys, known
    from skep.transport.nats_users import server_config

    if not config.transport.host_users:
        warning = "`transport.host_users` is false: hosts get no credentials until it is true"
        click.echo(f"Warning: {warning}", err=True)
    cells, revoked = _read(config, known)
    now = Clock().now() // SECOND
    return server_config(cells, keys(directory), listening, accounts_dir, now, config.transport.prefix, revoked)


def _tell(config: Config, directory: StateDirectory, otherwise: str) -> int:
    """Tell the servers of all accounts and return how many; raises Failed, or warns where they hear it `otherwise`."""
    from skep.domain.clock import Clock
    from skep.domain.errors import Misconfigured, Unreachable
    from skep.processes.nats_users import Accounts

    async def telling(database: Database) -> list[str]:
        return await Accounts(config, directory, database, Clock()).tell()

    try:
        return len(asyncio.run(_with_database(config, telling)))
    except (Misconfigured, Unreachable) as error:
        if not otherwise:
            raise Failed(str(error)) from error
        click.echo(f"Warning: {error}; {otherwise}", err=True)
        return 0


def _host(connection: Connection, name: str, now: int) -> tuple[HostMapping, Cell, int]:
    """Return a host, its cell, and the second that its credentials bear. Raises Refused when there is none."""
    from skep.database.api import cells, host_mappings, revoked_nats_users

    mapping = host_mappings.of_host(connection, name)
    if mapping is None:
        raise CommandRefused(f"there is no host {name[:80]!r}")
    cell = next(one for one in cells.every(connection) if one.uuid == mapping.cell)
    return mapping, cell, revoked_nats_users.issue_second(connection, mapping.node, now)


def _installed(config_file: Path | None) -> tuple[Config, StateDirectory]:
    from skep.processes.directory import StateDirectory

    config = load_installed(config_file).config
    return config, StateDirectory(Path(config.state.directory))


def _read(config: Config, unit: Callable[[Connection], ResultT]) -> ResultT:
    return asyncio.run(_with_database(config, lambda database: database.read(unit)))


async def _with_database(config: Config, work: Callable[[Database], Awaitable[ResultT]]) -> ResultT:
    from skep.processes.opening import open_database

    database = await open_database(config, "api")
    try:
        return await work(database)
    finally:
        await database.close()
