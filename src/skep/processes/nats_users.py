"""NATS users of hosts: their credentials, and the loop that tells servers of new cells and of revoked hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skep.config.sections import Config
from skep.database import Connection
from skep.database.api import cells as cell_rows
from skep.database.api import revoked_nats_users
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import Misconfigured, Unreachable
from skep.domain.ids import NodeUuid
from skep.processes.directory import StateDirectory
from skep.processes.nats_accounts import HostUser, all_secrets
from skep.processes.nats_secrets import keys_of
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.nats_accounts import ABOVE_ACCOUNT
from skep.transport.nats_keys import Keys
from skep.transport.nats_users import (
    Revoked,
    claims_of_accounts,
    credentials_of_host,
    credentials_of_system,
    inbox_of,
)

LOOK_SECONDS = 2.0
"""How often rows are compared with what servers were told: so long a revoked host may go on."""
AGAIN_SECONDS = 60.0
"""How often servers are told what they know: one may have come, or lost what it stored."""

RENEW_AFTER = (1.0, 10.0)
"""Seconds after a server's start was noticed at which it gets all accounts anew, with other dates.

A server loads accounts when their first users sign in. Where users of two accounts that import from each other do so
at once, one account may keep another that no user is in (seen with 2.9.10; what later releases changed there:
https://github.com/nats-io/nats-server/pull/5588). What a cell sends to the level above arrives nowhere then, and nobody
is told. Accounts that say something new are read again.
"""

log = get_logger(__name__)


def keys(directory: StateDirectory) -> Keys:
    """Return the keys of this installation's NATS. Raises Misconfigured when the state directory cannot be used."""
    return keys_of(all_secrets(directory))


def host_user(
    config: Config, directory: StateDirectory, cell: Cell, node: NodeUuid, host: str, second: int
) -> HostUser:
    """Return how a host signs in; `second` since the epoch is when its credentials count as issued."""
    credentials = credentials_of_host(keys(directory), cell, node, host, second, config.transport.prefix)
    return HostUser(credentials=credentials, inbox=inbox_of(node))


def known(connection: Connection) -> tuple[list[Cell], Revoked]:
    """Return what accounts follow from: the cells, and the revoked users of each."""
    revoked = revoked_nats_users.by_cell(connection)
    ended = {cell: {node: one.second for node, one in nodes.items()} for cell, nodes in revoked.items()}
    return [cell for cell in cell_rows.every(connection) if not cell.is_cell0], ended


class Accounts:
    """Tells NATS servers of accounts whenever rows say something else than what was told last, and now and then."""

    def __init__(
        self,
        config: Config,
        directory: StateDirectory,
        database: Database,
        clock: Clock,
        *,
        reconnects: Callable[[], int] = lambda: 0,
    ) -> None:
        """`reconnects`: how often this process lost the servers and found them again."""
        self._reconnects = reconnects
        self._reconnects_seen = reconnects()
        self._servers: frozenset[str] = frozenset()
        """That took what was told when all was told."""
        self._renew_at: tuple[int, ...] = ()
        self._config = config
        self._directory = directory
        self._database = database
        self._clock = clock
        self._told: dict[str, tuple[Mapping[str, Any], str]] = {}
        """By account: what it claims, and the JWT that says so."""
        self._signers: tuple[str, ...] = ()
        """By whom those JWTs are signed, and whose users they take."""
        self._told_at: int | None = None
        self._trouble = ""
        self._loop = Loop("nats-accounts", self._run, every=LOOK_SECONDS)

    def start(self) -> None:
        """Begin with all accounts."""
        self._loop.start()

    async def stop(self) -> None:
        """Finish what is under way."""
        await self._loop.stop()

    async def _run(self) -> bool:
        try:
            changed = await self.tell()
        except (Misconfigured, Unreachable) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("accounts not sent to NATS servers", error=self._trouble)
            return False
        if self._trouble or changed:
            self._trouble = ""
            log.info("accounts sent to NATS servers", accounts=len(changed))
        return False

    async def tell(self) -> list[str]:
        """Tell the servers what they may not know; return the accounts that say something new.

        Raises Unreachable when no server answers, Misconfigured when they refuse.
        """
        from skep.transport.nats_updates import update_accounts

        cells, revoked = await self._database.read(known)
        now, signing = self._clock.now(), keys(self._directory)
        claims = claims_of_accounts(cells, signing, self._config.transport.prefix, revoked)
        if self._is_to_renew(now):
            self._told = {}
        if signing.operators != self._signers:  # a rotation of the secrets that they follow from took a step
            self._told, self._signers = {}, signing.operators
        changed = [name for name, said in claims.items() if name not in self._told or self._told[name][0] != said]
        is_due = self._told_at is None or now - self._told_at >= AGAIN_SECONDS * SECOND
        if not changed and not is_due:
            return []
        fresh = {name: told for name, told in self._told.items() if name in claims}
        for name in changed:
            jwt = signing.account_jwt(name, claims[name], now // SECOND, jetstream=name == ABOVE_ACCOUNT)
            fresh[name] = (claims[name], jwt)
        sent = list(fresh) if is_due else changed
        system = credentials_of_system(signing, now // SECOND)
        servers = await update_accounts(self._config.transport, system, [fresh[name][1] for name in sent])
        self._told = fresh
        if is_due:
            if self._servers and not servers <= self._servers:
                self._renew(now)
            self._told_at, self._servers = now, servers
        return changed

    def _renew(self, now: int) -> None:
        self._renew_at = tuple(now + round(after * SECOND) for after in RENEW_AFTER)

    def _is_to_renew(self, now: int) -> bool:
        """Tell whether accounts have to be signed anew now, because a server started a while ago."""
        if self._reconnects() != self._reconnects_seen:
            self._reconnects_seen = self._reconnects()
            self._renew(now)
        # A clock that was set back would put it off.
        waiting = tuple(at for at in self._renew_at if now < at <= now + RENEW_AFTER[-1] * SECOND)
        due, self._renew_at = len(waiting) < len(self._renew_at), waiting
        return due
