"""A handle's watch over its NATS server ends when it is told to."""

from __future__ import annotations

import asyncio

from skep.config.nats_security import NatsSecurity
from skep.contracts.eventually import PATIENCE
from skep.domain.errors import Unreachable
from skep.synchronizer.nats_link import NatsServers
from skep.synchronizer.nats_lives import NatsLives
from skep.synchronizer.nats_session import HeldLife, NatsSession


class Losing(NatsSession):
    """Loses a cancellation, as a client does whose connection fails in the same moment."""

    def __init__(self) -> None:
        server = NatsServers("nats://127.0.0.1:1", NatsSecurity())
        super().__init__(server, NatsLives("cloud", 1), call_seconds=PATIENCE, keep_changes=1)
        self.looks = asyncio.Event()

    async def look(self) -> HeldLife:
        self.looks.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unreachable("synchronizer: NATS does not answer") from None
        raise AssertionError("the look was not cancelled")


async def test_a_watch_ends_whose_cancellation_the_client_loses() -> None:
    session = Losing()
    session.open()
    session.watch()
    session.unsettle()
    await session.looks.wait()
    watch = session._watch
    assert watch is not None
    watch.cancel()
    _, waiting = await asyncio.wait({watch}, timeout=PATIENCE)
    assert not waiting
