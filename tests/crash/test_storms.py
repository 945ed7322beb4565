"""Messages are lost, repeated, delayed and reordered while servers come and go: nothing stuck, twice or left."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from skep.config.sections import ConductorSettings
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.messages.to_cell_conductor import Heartbeat
from skep.messages.to_scheduler import GetHostStates
from skep.testing.chaos_transport import FATES, ChaosTransport, Fate
from skep.testing.cloud import quick_config, running_cloud
from skep.testing.crash_takeover import findings
from skep.testing.crash_walk import CELLS, FAILING, FAILURES, HOSTS, MEMBERS, MOVING
from skep.testing.witness import Asked
from skep.transport.base import Address

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

MESSAGES = 150
"""So many meet a fate; all later ones are delivered: the storm is over."""
EXAMPLES = int(os.environ.get("STORM_EXAMPLES", "15"))


class Storm:
    """Deals out fates. Heartbeats and the questions of the test itself are left alone."""

    def __init__(self, fates: list[Fate]) -> None:
        self._fates: Iterator[Fate] = iter(fates)
        self.passed = 0
        self.told: dict[int, asyncio.Event] = {}
        self.raging = False

    def decide(self, _address: Address, message: Any) -> Fate:
        if not self.raging or isinstance(message, (Heartbeat, GetHostStates)):
            return "delivered"
        self.passed += 1
        for at, event in self.told.items():
            if self.passed >= at:
                event.set()
        return next(self._fates, "delivered")

    def at(self, messages: int) -> asyncio.Event:
        """Return what happens when so many messages were sent."""
        return self.told.setdefault(messages, asyncio.Event())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    fates=st.lists(st.sampled_from(FATES), min_size=20, max_size=MESSAGES),
    deletes=st.lists(st.tuples(st.integers(0, MEMBERS - 1), st.integers(1, 60)), max_size=MEMBERS),
    name=st.sampled_from(["server", FAILING, MOVING]),
)
def test_no_storm_of_messages_does_harm(fates: list[Fate], deletes: list[tuple[int, int]], name: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(weather(Path(root), fates, deletes, name))


async def weather(root: Path, fates: list[Fate], deletes: list[tuple[int, int]], name: str) -> None:
    storm = Storm(fates)
    transport = ChaosTransport(storm.decide, longest_call=1.0)
    quick = quick_config(failures=FAILURES, conductor=ConductorSettings(lease_seconds=1.0, resend_seconds=0.2))
    async with running_cloud(root, quick, cells=CELLS, hosts=HOSTS, transport=transport) as cloud:
        storm.raging = True
        uuids = await cloud.create(MEMBERS, name=name)
        deleted: set[InstanceUuid] = set()
        for index, moment in sorted(deletes, key=lambda one: one[1]):
            try:
                # A storm may end early: then the delete comes when all is quiet.
                async with asyncio.timeout(2):
                    await storm.at(moment).wait()
            except TimeoutError:
                note(f"after {storm.passed} messages all was quiet")
            await cloud.delete(uuids[index])
            deleted.add(uuids[index])
        await cloud.gone(sorted(deleted))
        left = sorted(set(uuids) - deleted)
        servers = await cloud.settled(left)
        await transport.settled()
        found = await findings(cloud, Asked(created=set(left), deleted=set(deleted)))
        assert found.clean, found.text()
        assert {server.state for server in servers} <= {State.ACTIVE}
        for uuid in left:
            await cloud.delete(uuid)
        await cloud.nothing_left()
