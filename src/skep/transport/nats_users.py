"""NATS servers on which each host has a user of its own: accounts and users are JWTs (NATS' operator mode).

The accounts are those of `nats_accounts.py`, with the same exports and imports. Who may sign in is not written in the
servers' configuration: a user is a JWT that a signing key of its account signed, so a new host changes nothing on the
servers. A new cell or a revoked host is the JWT of one account, which is sent to the servers (`UPDATE_SUBJECT`) while
they run. A host may speak to its conductors, and hears what is sent to itself; its answers arrive in an inbox that no
other host may listen to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from skep.domain.cells import Cell
from skep.domain.ids import CellUuid, NodeUuid
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, cell_conductor, compute, scheduler_for, super_conductor_for
from skep.transport.nats_accounts import ABOVE_ACCOUNT, ABOVE_USER, INBOXES, NatsListening, listens, user_of
from skep.transport.nats_keys import Keys
from skep.transport.subjects import subject_of, subject_of_cells

Revoked = Mapping[CellUuid, Mapping[NodeUuid, int]]
"""By cell: nodes of hosts, and up to which second since the epoch what was issued to their users is void."""

SYSTEM_ACCOUNT = "SYSTEM"
UPDATE_SUBJECT = "$SYS.REQ.CLAIMS.UPDATE"
"""Where NATS servers take the JWT of an account."""


def host_user(node: NodeUuid) -> str:
    """Return the name of a host's user, which its key follows from."""
    return f"host {node}"


def inbox_of(node: NodeUuid) -> str:
    """Return below which subject the answers to a host arrive; no other host may listen there."""
    return f"_INBOX.{node.replace('-', '')}"


def server_config(
    cells: Iterable[Cell],
    keys: Keys,
    listening: NatsListening,
    directory: str,
    now: int,
    prefix: str = "skep",
    revoked: Revoked | None = None,
) -> str:
    """Return the configuration of the servers that all cells share; `directory` is where they keep JWTs of accounts.

    `now` is in seconds since the epoch.
    """
    accounts = {keys.account(name): jwt for name, jwt in signed_accounts(cells, keys, now, prefix, revoked).items()}
    document = {
        **listens(listening),
        "operator": keys.operator_jwt(SYSTEM_ACCOUNT, now),
        "system_account": keys.account(SYSTEM_ACCOUNT),
        "resolver": {"type": "full", "dir": directory, "allow_delete": False, "interval": "2m"},
        "resolver_preload": {keys.account(SYSTEM_ACCOUNT): keys.account_jwt(SYSTEM_ACCOUNT, {}, now), **accounts},
    }
    return "".join(f"{key}: {json.dumps(value, indent=2)}\n" for key, value in document.items())


def signed_accounts(
    cells: Iterable[Cell], keys: Keys, now: int, prefix: str = "skep", revoked: Revoked | None = None
) -> dict[str, str]:
    """Return the JWTs of the accounts above and of the cells by name. Servers keep the one that was issued last."""
    return {
        name: keys.account_jwt(name, claims, now, jetstream=name == ABOVE_ACCOUNT)
        for name, claims in claims_of_accounts(cells, keys, prefix, revoked).items()
    }


def claims_of_accounts(
    cells: Iterable[Cell], keys: Keys, prefix: str = "skep", revoked: Revoked | None = None
) -> dict[str, dict[str, Any]]:
    """Return what the accounts above and of the cells export, import and revoke, by the account's name."""
    cells = [cell for cell in cells if not cell.is_cell0]
    exports = [_export(subject_of_cells(prefix, role)) for role in (SCHEDULER, SUPER_CONDUCTOR)]
    imports = [_import(keys, account_of(cell), subject_of(prefix, cell_conductor(cell.uuid))) for cell in cells]
    found: dict[str, dict[str, Any]] = {ABOVE_ACCOUNT: {"exports": exports, "imports": imports}}
    for cell in cells:
        of_cell = (revoked or {}).get(cell.uuid, {})
        void = {user: when for node, when in of_cell.items() for user in keys.users(host_user(node))}
        up = (scheduler_for(cell.uuid), super_conductor_for(cell.uuid))
        found[account_of(cell)] = {
            "exports": [_export(subject_of(prefix, cell_conductor(cell.uuid)))],
            "imports": [_import(keys, ABOVE_ACCOUNT, subject_of(prefix, address)) for address in up],
            **({"revocations": void} if void else {}),
        }
    return found


def credentials_above(keys: Keys, now: int) -> str:
    """Return the credentials of API, super conductors and schedulers."""
    return keys.credentials(ABOVE_ACCOUNT, ABOVE_USER, {}, now)


def credentials_of_system(keys: Keys, now: int) -> str:
    """Return the credentials of whoever sends accounts to the servers."""
    return keys.credentials(SYSTEM_ACCOUNT, "system", {}, now)


def credentials_of_conductors(keys: Keys, cell: Cell, now: int, prefix: str = "skep") -> str:
    """Return the credentials of a cell's conductors."""
    conductors = subject_of(prefix, cell_conductor(cell.uuid))
    agents = subject_of(prefix, compute(cell.uuid, "HOST")).removesuffix("HOST") + "*"
    up = [subject_of(prefix, address(cell.uuid)) for address in (scheduler_for, super_conductor_for)]
    permissions = _permissions([agents, *up, *INBOXES], [conductors, INBOXES[0]])
    return keys.credentials(account_of(cell), user_of(cell, "conductor"), permissions, now)


def credentials_of_host(keys: Keys, cell: Cell, node: NodeUuid, host: str, now: int, prefix: str = "skep") -> str:
    """Return the credentials of one host: it speaks to its conductors, and hears what is for it."""
    own = subject_of(prefix, compute(cell.uuid, host))
    permissions = _permissions([subject_of(prefix, cell_conductor(cell.uuid))], [own, f"{inbox_of(node)}.>"])
    return keys.credentials(account_of(cell), host_user(node), permissions, now, shown=host)


def account_of(cell: Cell) -> str:
    """Return the name of a cell's account, which its public key follows from."""
    return f"CELL {cell.uuid}"


def _permissions(publish: list[str], subscribe: list[str]) -> dict[str, Any]:
    return {"pub": {"allow": publish}, "sub": {"allow": subscribe}}


def _export(subject: str) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "type": "service", "response_type": "Singleton"}


def _import(keys: Keys, account: str, subject: str) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "account": keys.account(account), "type": "service"}
