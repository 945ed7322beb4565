"""Who signs in to NATS as what: passwords that follow from a secret in the state directory, and addresses with them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skep.admin.joining import Messaging
from skep.config.sections import Config, TransportSettings
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.processes import nats_secrets
from skep.processes.directory import StateDirectory, write_private
from skep.processes.wiring import MEMORY
from skep.transport.nats_accounts import ABOVE_USER, CellRole, NatsPasswords, signed_in, user_of, without_user


class HostUser(msgspec.Struct, frozen=True, kw_only=True):
    """How one host signs in by a NATS user of its own."""

    credentials: str
    inbox: str


def passwords(directory: StateDirectory) -> NatsPasswords:
    """Return the passwords of this installation's NATS users; their secret is made once.

    Raises Misconfigured when the state directory cannot be used.
    """
    return nats_secrets.passwords_of(all_secrets(directory))


def all_secrets(directory: StateDirectory) -> tuple[nats_secrets.Secret, ...]:
    """Return what passwords and keys of NATS users follow from, the one that is used first; the first is made once.

    Raises Misconfigured when the state directory cannot be used.
    """
    path = directory.nats_key
    try:
        if not path.exists():
            directory.make()
            directory.keys.mkdir(exist_ok=True)
            write_private(path, secrets.token_bytes(nats_secrets.SECRET_BYTES))
    except OSError as error:
        raise Misconfigured(f"{path} cannot be used: {error.strerror}") from error
    return nats_secrets.secrets_in(path)


def url_above(directory: StateDirectory, urls: str) -> str:
    """Return addresses of NATS servers for what stands above the cells."""
    known = passwords(directory)
    return signed_in(urls, known.name(ABOVE_USER), known.of(ABOVE_USER))


def url_of_cell(directory: StateDirectory, cell: Cell, role: CellRole, urls: str) -> str:
    """Return addresses of NATS servers for one role of a cell."""
    user, known = user_of(cell, role), passwords(directory)
    return signed_in(urls, known.name(user), known.of(user))


def messaging_of_hosts(
    config: Config, directory: StateDirectory, cell: Cell, own_url: str, host: HostUser | None = None
) -> Messaging:
    """Return what a new host of a cell is told of its messaging; `own_url`: of the cell's own servers, if it has some.

    `host` is who gets a NATS user of its own where hosts have some; servers of a cell's own know none.

    Raises Misconfigured when messages of this installation stay in its process, or when all that it could be told is
    the user and password of what stands above the cells.
    """
    settings = config.transport
    if settings.kind == MEMORY:
        raise Misconfigured("transport.kind is `memory`: hosts on other machines cannot reach it, set it to `nats`")
    url = own_url or settings.public_url or settings.url
    told = Messaging(url=url, prefix=settings.prefix, ca=_content(settings))
    if settings.host_users and host is not None and not own_url:
        told = replace(told, url=without_user(url), credentials=host.credentials, inbox=host.inbox)
    if settings.accounts:
        return replace(told, url=url_of_cell(directory, cell, "compute", url))
    if told.credentials:
        return told
    if own_url:
        _refuse_signed_in(own_url, f"the transport URL of cell {cell.name}")
    elif not settings.public_url:
        _refuse_signed_in("@" if settings.sign_in_file else settings.url, _name_of_sign_in(settings))
    return told


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


def _name_of_sign_in(settings: TransportSettings) -> str:
    return "transport.sign_in_file" if settings.sign_in_file else "transport.url"


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
