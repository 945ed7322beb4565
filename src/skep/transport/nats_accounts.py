"""The configuration of a NATS server on which each cell has an account of its own, and who signs in as what.

Above the cells is one account for API, super conductors and schedulers (and their JetStream). A cell's account has two
users, one for its conductors and one for its agents, and exports and imports exactly:

    cell.CELL.conductor          exported to the level above, which sends hints there
    cell.CELL.scheduler          imported from above: reports, beats, claims, choices of a host
    cell.CELL.super_conductor    imported from above: hints

Whatever else a cell publishes stays in its account. `cell.CELL.compute.HOST` is between its conductors and agents. The
format is that of https://docs.nats.io/running-a-nats-service/configuration (accounts, leaf nodes, TLS).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from skep.domain.cells import Cell
from skep.transport.base import cell_conductor, compute, scheduler_for, super_conductor_for
from skep.transport.subjects import subject_of

CellRole = Literal["conductor", "compute", "above"]
"""Users of a cell's account. `above` is who sends hints from above to a cell with servers of its own."""

ABOVE_ACCOUNT = "SKEP"
ABOVE_USER = "skep"
INBOXES = ("_INBOX.>", "_R_.>")
"""Where answers go: within an account, and from one to another."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Files by which a NATS server shows who it is."""

    cert_file: str
    key_file: str
    ca_file: str = ""
    verify: bool = False
    """Clients have to show a certificate of that CA."""


class NatsListening(msgspec.Struct, frozen=True, kw_only=True):
    """What a NATS server listens on, and keeps."""

    address: str
    tls: Tls | None = None
    jetstream: str = ""
    """Directory of its store; empty: none."""
    leaf_address: str = ""
    """Where servers of cells connect; empty: none do."""


class NatsPasswords:
    """Derives the password of each user from one secret of the installation, so that none of them is stored."""

    def __init__(self, secret: bytes, mark: str = "") -> None:
        """`mark` ends the names of users, so that those of two secrets stand side by side."""
        self._secret = secret
        self._mark = mark
        self.taken: tuple[NatsPasswords, ...] = (self,)
        """These, and those of other secrets that servers take beside them."""

    def followed_by(self, others: Iterable[NatsPasswords]) -> NatsPasswords:
        """Have servers take those of other secrets, too."""
        self.taken = (self, *others)
        return self

    def name(self, user: str) -> str:
        """Return by which name a user signs in."""
        return f"{user}.{self._mark}" if self._mark else user

    def of(self, user: str) -> str:
        """Return the password of a user."""
        digest = hmac.new(self._secret, f"nats user {user}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def user_of(cell: Cell, role: CellRole) -> str:
    """Return the name by which one role of a cell signs in."""
    return f"{cell.uuid}.{role}"


def signed_in(urls: str, user: str, password: str) -> str:
    """Return the addresses with this user and password, in place of those that they have."""
    return ",".join(_with_user(url.strip(), user, password) for url in urls.split(",") if url.strip())


def without_user(urls: str) -> str:
    """Return the addresses without the users and passwords that they have."""
    parts = (url.strip().partition("://") for url in urls.split(",") if url.strip())
    return ",".join(f"{scheme}://{rest.rpartition('@')[2]}" for scheme, _, rest in parts)


def server_config(
    cells: Iterable[Cell], passwords: NatsPasswords, listening: NatsListening, prefix: str = "skep"
) -> str:
    """Return the configuration of the servers that all share: the account above and one for each cell."""
    cells = [cell for cell in cells if not cell.is_cell0]
    above: dict[str, Any] = {
        "users": [{"user": one.name(ABOVE_USER), "password": one.of(ABOVE_USER)} for one in passwords.taken],
        "exports": [
            {"service": subject_of(prefix, address(cell.uuid)), "accounts": [_account(cell)]}
            for cell in cells
            for address in (scheduler_for, super_conductor_for)
        ],
        "imports": [
            {"service": {"account": _account(cell), "subject": subject_of(prefix, cell_conductor(cell.uuid))}}
            for cell in cells
        ],
    }
    if listening.jetstream:
        above["jetstream"] = "enabled"
    accounts = {ABOVE_ACCOUNT: above, **{_account(cell): _cell_account(cell, passwords, prefix) for cell in cells}}
    document = {**listens(listening), "accounts": accounts}
    if listening.leaf_address:
        users = [_leaf_user(cell, one) | {"account": _account(cell)} for cell in cells for one in passwords.taken]
        document["leafnodes"] = {"listen": listening.leaf_address, "authorization": {"users": users}}
        if listening.tls is not None:
            document["leafnodes"]["tls"] = _tls(listening.tls)
    return _text(document)


def cell_server_config(
    cell: Cell,
    passwords: NatsPasswords,
    listening: NatsListening,
    hub: str,
    prefix: str = "skep",
    hub_ca_file: str = "",
) -> str:
    """Return the configuration of a cell's own servers, which join the account of the cell on the shared ones.

    `hub`: where the shared servers take them, `nats-leaf://HOST:PORT` or `tls://HOST:PORT`.
    """
    user = _leaf_user(cell, passwords)
    remote: dict[str, Any] = {"url": _with_user(hub, user["user"], user["password"]), "account": _account(cell)}
    if hub_ca_file:
        remote["tls"] = {"ca_file": hub_ca_file}
    account = {"users": _users(cell, ("conductor", "compute", "above"), passwords, prefix)}
    document = {**listens(listening), "accounts": {_account(cell): account}, "leafnodes": {"remotes": [remote]}}
    return _text(document)


def _cell_account(cell: Cell, passwords: NatsPasswords, prefix: str) -> dict[str, Any]:
    up = (scheduler_for(cell.uuid), super_conductor_for(cell.uuid))
    return {
        "users": _users(cell, ("conductor", "compute"), passwords, prefix),
        "exports": [{"service": subject_of(prefix, cell_conductor(cell.uuid)), "accounts": [ABOVE_ACCOUNT]}],
        "imports": [{"service": {"account": ABOVE_ACCOUNT, "subject": subject_of(prefix, address)}} for address in up],
    }


def _users(cell: Cell, roles: Iterable[CellRole], passwords: NatsPasswords, prefix: str) -> list[dict[str, Any]]:
    return [_user(cell, role, one, prefix) for role in roles for one in passwords.taken]


def _user(cell: Cell, role: CellRole, passwords: NatsPasswords, prefix: str) -> dict[str, Any]:
    conductors = subject_of(prefix, cell_conductor(cell.uuid))
    agents = subject_of(prefix, compute(cell.uuid, "HOST")).removesuffix("HOST") + "*"
    up = [subject_of(prefix, address(cell.uuid)) for address in (scheduler_for, super_conductor_for)]
    publish: Mapping[CellRole, list[str]] = {
        "conductor": [agents, *up, *INBOXES],
        "compute": [conductors],
        "above": [conductors],
    }
    subscribe: Mapping[CellRole, list[str]] = {
        "conductor": [conductors, INBOXES[0]],
        "compute": [agents, INBOXES[0]],
        "above": [INBOXES[0]],
    }
    name = user_of(cell, role)
    return {
        "user": passwords.name(name),
        "password": passwords.of(name),
        "permissions": {"publish": {"allow": publish[role]}, "subscribe": {"allow": subscribe[role]}},
    }


def _leaf_user(cell: Cell, passwords: NatsPasswords) -> dict[str, str]:
    name = f"{cell.uuid}.servers"
    return {"user": passwords.name(name), "password": passwords.of(name)}


def _account(cell: Cell) -> str:
    return "CELL_" + cell.uuid.replace("-", "").upper()


def listens(listening: NatsListening) -> dict[str, Any]:
    """Return what a server listens on and keeps, as its configuration says it."""
    document: dict[str, Any] = {"listen": listening.address}
    if listening.tls is not None:
        document["tls"] = _tls(listening.tls)
    if listening.jetstream:
        document["jetstream"] = {"store_dir": listening.jetstream}
    return document


def _tls(tls: Tls) -> dict[str, Any]:
    document: dict[str, Any] = {"cert_file": tls.cert_file, "key_file": tls.key_file}
    if tls.ca_file:
        document["ca_file"] = tls.ca_file
    if tls.verify:
        document["verify"] = True
    return document


def _with_user(url: str, user: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"


def _text(document: Mapping[str, Any]) -> str:
    """Return a server's configuration: its values may be JSON, which says plainly what is a string."""
    return "".join(f"{key}: {json.dumps(value, indent=2)}\n" for key, value in document.items())
