"""`skep nats`: what NATS servers have to be told so that each cell has an account of its own, and who signs in as what.

Run where the state directory with the installation's keys is: passwords follow from a secret there, none is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.config import config_option
from skep.cli.failures import CommandRefused
from skep.cli.installed import load_installed
from skep.cli.nats_users import config_with_host_users, credentials, revoke, update, users

if TYPE_CHECKING:
    from skep.config import Config
    from skep.domain.cells import Cell
    from skep.processes.directory import StateDirectory
    from skep.transport.nats_accounts import NatsListening

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _server_options(command: CommandT) -> CommandT:
    options = (
        click.option("--listen", default="0.0.0.0:4222", show_default=True, help="HOST:PORT of the server."),
        click.option("--tls-cert", default="", metavar="FILE", help="The server's certificate."),
        click.option("--tls-key", default="", metavar="FILE", help="Its key."),
        click.option("--tls-ca", default="", metavar="FILE", help="CA of the certificates that clients show."),
        click.option("--tls-verify", is_flag=True, help="Clients must present a certificate."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def nats() -> None:
    """Write configurations of NATS servers with an account for each cell, and addresses with users and passwords.

    \b
    Example: skep nats config --listen 10.0.0.5:4222 > /etc/nats/skep.conf
             skep nats url cell-conductor --cell cell1
             skep nats credentials host --host node17
    """


@nats.command("config")
@_server_options
@click.option("--jetstream", default="", metavar="DIR", help="Keep host states there (synchronizer.backend `nats`).")
@click.option("--leaf-listen", default="", metavar="HOST:PORT", help="Accept the servers of cells there.")
@click.option("--host-users", is_flag=True, help="Give each host its own user; all clients sign in by credentials.")
@click.option("--accounts-dir", default="", metavar="DIR", help="With --host-users: where the server keeps accounts.")
@config_option
def config_(
    listen: str,
    tls_cert: str,
    tls_key: str,
    tls_ca: str,
    tls_verify: bool,
    jetstream: str,
    leaf_listen: str,
    host_users: bool,
    accounts_dir: str,
    config_file: Path | None,
) -> None:
    """Print the configuration of the servers that all cells share. It holds passwords.

    After adding a cell print it again and reload the servers: `nats-server --signal reload=PID`. NATS 2.9 connects a
    new account only at the second reload: signal twice, 2 s apart.

    With --host-users it holds no passwords, and is printed once: super conductors tell the servers of new cells and of
    revoked hosts while they run. Processes sign in by `transport.credentials_file` (`skep nats credentials`).

    \b
    Example: skep nats config --listen 10.0.0.5:4222 > /etc/nats/skep.conf
             skep nats config --host-users --accounts-dir /var/lib/nats/accounts > /etc/nats/skep.conf
    """
    from skep.processes.nats_accounts import passwords
    from skep.transport.nats_accounts import server_config

    config, directory, cells = _installation(config_file)
    listening = _listening(listen, tls_cert, tls_key, tls_ca, tls_verify, jetstream, leaf_listen)
    if host_users:
        if not accounts_dir:
            raise CommandRefused("--accounts-dir DIR: with --host-users the server keeps its accounts in a directory")
        if leaf_listen:
            raise CommandRefused("--leaf-listen: servers of cells cannot join servers with --host-users yet")
        click.echo(config_with_host_users(config, directory, listening, accounts_dir), nl=False)
        return
    if accounts_dir:
        raise CommandRefused("--accounts-dir: only with --host-users")
    if not config.transport.accounts:
        warning = "`transport.accounts` is false: no host can be enrolled into its cell's account until it is true"
        click.echo(f"Warning: {warning}", err=True)
    click.echo(server_config(cells.values(), passwords(directory), listening, config.transport.prefix), nl=False)


@nats.command("cell-config")
@click.argument("cell")
@click.option("--hub", required=True, metavar="URL", help="Where the shared servers accept the servers of cells.")
@click.option("--hub-ca", default="", metavar="FILE", help="CA of the shared servers' certificate.")
@_server_options
@config_option
def cell_config(
    cell: str,
    hub: str,
    hub_ca: str,
    listen: str,
    tls_cert: str,
    tls_key: str,
    tls_ca: str,
    tls_verify: bool,
    config_file: Path | None,
) -> None:
    """Print the configuration of a cell's own servers, which join the cell's account on the shared ones.

    \b
    Example: skep nats cell-config cell1 --hub tls://10.0.0.5:7422 --listen 10.1.0.5:4222
    """
    from skep.processes.nats_accounts import by_name, passwords
    from skep.transport.nats_accounts import cell_server_config

    config, directory, cells = _installation(config_file)
    listening = _listening(listen, tls_cert, tls_key, tls_ca, tls_verify)
    text = cell_server_config(
        by_name(cells, cell), passwords(directory), listening, hub, config.transport.prefix, hub_ca
    )
    click.echo(text, nl=False)


@nats.command()
@click.argument("role", type=click.Choice(("above", "cell-conductor", "compute")))
@click.option("--cell", default="", metavar="NAME", help="The cell of the role.")
@click.option("--servers", default="", metavar="URLS", help="The servers' addresses; default: `transport.url`.")
@config_option
def url(role: str, cell: str, servers: str, config_file: Path | None) -> None:
    """Print what a role's `transport.url` has to be, with its user and password.

    above is API, super conductors and schedulers; with a cell, what they use for that cell's own servers.

    \b
    Example: skep nats url above
             skep nats url cell-conductor --cell cell1
    """
    from skep.processes.nats_accounts import by_name, url_above, url_of_cell

    if role != "above" and not cell:
        raise CommandRefused(f"--cell NAME: a {role} signs in to its cell's account")
    config, directory, cells = _installation(config_file)
    servers = servers or config.transport.url
    if not cell:
        click.echo(url_above(directory, servers))
        return
    user: Any = {"above": "above", "cell-conductor": "conductor", "compute": "compute"}[role]
    click.echo(url_of_cell(directory, by_name(cells, cell), user, servers))


for command in (credentials, users, revoke, update):
    nats.add_command(command)


def _installation(config_file: Path | None) -> tuple[Config, StateDirectory, dict[str, Cell]]:
    from skep.processes.directory import StateDirectory

    config = load_installed(config_file).config
    return config, StateDirectory(Path(config.state.directory)), asyncio.run(_cells(config))


async def _cells(config: Config) -> dict[str, Cell]:
    from skep.database.api import cells
    from skep.processes.opening import open_database

    database = await open_database(config, "api")
    try:
        return {cell.name: cell for cell in await database.read(cells.every) if not cell.is_cell0}
    finally:
        await database.close()


def _listening(
    listen: str, cert: str, key: str, ca: str, verify: bool, jetstream: str = "", leaf_listen: str = ""
) -> NatsListening:
    from skep.transport.nats_accounts import NatsListening, Tls

    if bool(cert) != bool(key):
        raise CommandRefused("--tls-cert and --tls-key go together")
    if verify and not (cert and ca):
        raise CommandRefused("--tls-verify needs --tls-ca, and the server's own --tls-cert and --tls-key")
    tls = Tls(cert_file=cert, key_file=key, ca_file=ca, verify=verify) if cert else None
    return NatsListening(address=listen, tls=tls, jetstream=jetstream, leaf_address=leaf_listen)
