"""A server of NATS that started anew gets accounts that it reads again: it may have loaded some of them amiss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.config.sections import TransportSettings
from skep.contracts.cloud import quick_config
from skep.contracts.neighbours.served import SteppedClock
from skep.database import opening
from skep.domain.clock import Clock
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.processes.nats_users import AGAIN_SECONDS, RENEW_AFTER, Accounts
from skep.processes.servers.nats import NatsServer
from tests.functional.processes.accounts_cloud import make_databases, output_of

ANY_PORT = "127.0.0.1:-1"

pytestmark = [pytest.mark.needs_part("nats-server")]


@dataclass
class Telling:
    """Accounts of an installation, told to a real server by a clock that only moves when it is set."""

    nats: NatsServer
    config: str
    kept: Path
    accounts: Accounts
    clock: SteppedClock
    reconnects: int = 0
    seen: dict[str, bytes] = field(default_factory=dict)

    async def tell(self, after: float) -> int:
        """Let seconds pass, and look once; return of how many accounts the server was told something new."""
        self.clock.advance(after)
        return len(await self.accounts.tell())

    async def restart(self) -> None:
        """Start another server in the place of the one that runs."""
        self.nats.stop()
        self.nats.reconfigure(self.config.replace(ANY_PORT, f"127.0.0.1:{self.nats.port}"))
        await self.nats.start()

    def rewritten(self) -> int:
        """Return how many accounts the server keeps otherwise than at the last look."""
        now = {file.name: file.read_bytes() for file in self.kept.glob("*.jwt")}
        changed = sum(self.seen.get(name) != text for name, text in now.items())
        self.seen = now
        return changed


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[Telling]:
    state = tmp_path / "state"
    directory = StateDirectory(state)
    directory.open()
    directory.close()
    base = quick_config()
    config = replace(base, state=replace(base.state, directory=str(state)))
    await make_databases(config)
    environ = {"SKEP_STATE__DIRECTORY": str(state), "SKEP_TRANSPORT__HOST_USERS": "true"}
    kept = tmp_path / "accounts"
    options = ("--listen", ANY_PORT, "--host-users", "--accounts-dir", str(kept))
    text = await output_of(environ, "nats", "config", *options)
    above = tmp_path / "above.creds"
    above.write_text(await output_of(environ, "nats", "credentials", "above"))
    api = await opening.open_database("api", Places(config, directory).of("api"), upgrade=False)
    async with NatsServer(tmp_path / "nats", jetstream=False, config=text) as nats:
        transport = TransportSettings(kind="nats", url=nats.url, host_users=True, credentials_file=str(above))
        clock = SteppedClock(Clock().now())
        found = Telling(nats, text, kept, None, clock)  # type: ignore[arg-type]  # it is made of what is told here
        found.accounts = Accounts(
            replace(config, transport=transport), directory, api, clock, reconnects=lambda: found.reconnects
        )
        yield found
    await api.close()


async def test_accounts_are_written_anew_after_the_connection_was_lost(telling: Telling) -> None:
    assert await telling.tell(5.0) == 2
    assert telling.rewritten() >= 2
    assert await telling.tell(5.0) == 0
    telling.reconnects += 1
    assert await telling.tell(0.0) == 0
    for after in (RENEW_AFTER[0], RENEW_AFTER[1] - RENEW_AFTER[0]):
        assert await telling.tell(after) == 2
        assert telling.rewritten() == 2
    assert await telling.tell(20.0) == 0
    assert telling.rewritten() == 0


async def test_another_server_is_noticed_when_all_is_told_once_more(telling: Telling) -> None:
    assert await telling.tell(5.0) == 2
    assert await telling.tell(AGAIN_SECONDS) == 0
    telling.rewritten()
    await telling.restart()
    assert await telling.tell(AGAIN_SECONDS) == 0
    assert telling.rewritten() == 0
    assert await telling.tell(RENEW_AFTER[0]) == 2
    assert telling.rewritten() == 2
