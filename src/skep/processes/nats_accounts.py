"""Who signs in to NATS as what: passwords that follow from a secret in the state directory, and addresses with them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from skep.admin.joining import Messaging
from skep.config.sections import Config, TransportSettings
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory, write_private
from skep.processes.wiring import MEMORY
from skep.transport.nats_accounts import ABOVE_USER, CellRole, Passwords, signed_in, user_of

SECRET_BYTES = 32


def passwords(directory: StateDirectory) -> Passwords:
    """Return the passwords of this installation's NATS users; their secret is made once.

    Raises Misconfigured when the state directory cannot be used.
    """
    path = directory.keys / "nats.key"
    try:
        if not path.exists():
            directory.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, secrets.token_bytes(SECRET_BYTES))
        return Passwords(path.read_bytes())
    except OSError as error:
        raise Misconfigured(f"{path} cannot be used: {error.strerror}") from error


def url_above(directory: StateDirectory, urls: str) -> str:
    """Return addresses of NATS servers for what stands above the cells."""
    return signed_in(urls, ABOVE_USER, passwords(directory).of(ABOVE_USER))


def url_of_cell(directory: StateDirectory, cell: Cell, role: CellRole, urls: str) -> str:
    """Return addresses of NATS servers for one role of a cell."""
    user = user_of(cell, role)
    return signed_in(urls, user, passwords(directory).of(user))


def messaging_of_hosts(config: Config, directory: StateDirectory, cell: Cell, own_url: str) -> Messaging:
    """Return what a new host of a cell is told of its messaging; `own_url`: of the cell's own servers, if it has some.

    Raises Misconfigured when messages of this installation stay in its process, or when all that it could be told is
    the user and password of what stands above the cells.
    """
    settings = config.transport
    if settings.kind == MEMORY:
        raise Misconfigured("transport.kind is `memory`: hosts elsewhere would reach nobody, set it to `nats`")
    url = own_url or settings.public_url or settings.url
    if settings.accounts:
        url = url_of_cell(directory, cell, "compute", url)
    elif own_url:
        _refuse_signed_in(own_url, f"the transport URL of cell {cell.name}")
    elif not settings.public_url:
        _refuse_signed_in(settings.url, "transport.url")
    return Messaging(url=url, prefix=settings.prefix, ca=_content(settings))


def _refuse_signed_in(urls: str, setting: str) -> None:
    """See that addresses name no user: that one may do what the level above may, in every cell. Raises Misconfigured.

    In `transport.public_url` a user is what the operator chose to tell hosts, so it is not asked for here.
    """
    if "@" in urls:
        raise Misconfigured(
            f"{setting} holds a user and password of the control plane, which no host may have: set "
            "`transport.accounts` to true where NATS runs by `skep nats config`, or set `transport.public_url` to the "
            "address for hosts"
        )


def _content(settings: TransportSettings) -> str:
    """Return the text of the CA's certificate, which a new host does not have yet."""
    if not settings.ca_file:
        return ""
    try:
        return Path(settings.ca_file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"transport.ca_file: {settings.ca_file} cannot be read: {error}") from error


def by_name(cells: Mapping[str, Cell], name: str) -> Cell:
    """Return a cell by its name or UUID. Raises Misconfigured when there is none."""
    for cell in cells.values():
        if name in (cell.name, cell.uuid):
            return cell
    raise Misconfigured(f"there is no cell {name[:80]!r}; there are {', '.join(sorted(cells)) or 'none'}")
