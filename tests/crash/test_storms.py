"""Messages are lost, repeated, delayed and reordered while servers come and go: nothing stuck, twice or left."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import build_requests
from skep.database.cell import instances
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from skep.messages.to_cell_conductor import Heartbeat
from skep.messages.to_scheduler import GetHostStates
from skep.transport.base import Address
from skep_lab.chaos.transport import FATES, ChaosTransport, Fate
from skep_lab.crash.takeover import findings
from skep_lab.crash.walk import CELLS, FAILING, FAILURES, HOSTS, MEMBERS, MOVING
from skep_lab.witnesses.witness import Promised
from tests.support import samples

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

Moment = tuple[int, int]

MESSAGES = 150
"""So many meet a fate; all later ones are delivered: the storm is over."""
EXAMPLES = int(os.environ.get("STORM_EXAMPLES", "60" if samples.everywhere() else "8"))


MOMENTS = st.tuples(st.integers(1, 60), st.integers(0, MEMBERS - 1))
"""After so many messages, this member."""


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

    async def after(self, messages: int) -> None:
        """Wait until so many messages were sent; a storm may end before, then all is quiet."""
        event = self.told.setdefault(messages, asyncio.Event())
        try:
            async with asyncio.timeout(2):
                await event.wait()
        except TimeoutError:
            note(f"after {self.passed} messages all was quiet")


async def update(cloud: Cloud, uuid: InstanceUuid, value: str) -> None:
    """Change a server as the API does: above the cells while it has none, else in its cell; again while it moves."""
    api, now = cloud.plane.databases.api, cloud.clock.now()

    def alter(instance: Instance) -> Instance:
        return msgspec.structs.replace(instance, metadata={"last": value})

    async def once() -> bool:
        cell = await cloud.cell_of(uuid)
        if cell is None:
            return await api.write(partial(build_requests.change, instance=uuid, alter=alter, now=now)) is not None
        unit = partial(instances.change, uuid=uuid, alter=alter, now=now)
        return await cloud.plane.databases.cells[cell].write(unit) is not None

    await eventually(once, "the server takes an update")


@pytest.mark.sampled
# An example takes seconds, so a failing one is not made smaller: it is told as it was found.
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    fates=st.lists(st.sampled_from(FATES), min_size=20, max_size=MESSAGES),
    deletes=st.lists(MOMENTS, max_size=MEMBERS),
    updates=st.lists(MOMENTS, max_size=MEMBERS),
    name=st.sampled_from(["server", FAILING, MOVING]),
)
def test_no_storm_of_messages_does_harm(
    fates: list[Fate], deletes: list[Moment], updates: list[Moment], name: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(weather(Path(root), fates, deletes, updates, name))


async def weather(root: Path, fates: list[Fate], deletes: list[Moment], updates: list[Moment], name: str) -> None:
    storm = Storm(fates)
    transport = ChaosTransport(storm.decide, longest_call=1.0)
    quick = quick_config(failures=FAILURES, conductor=ConductorSettings(lease_seconds=1.0, resend_seconds=0.2))
    async with running_cloud(root, quick, cells=CELLS, hosts=HOSTS, transport=transport) as cloud:
        storm.raging = True
        uuids = await cloud.create(MEMBERS, name=name)
        deleted: set[InstanceUuid] = set()
        updated: dict[InstanceUuid, str] = {}
        todo = [(moment, index, "delete") for moment, index in deletes]
        todo += [(moment, index, f"update {number}") for number, (moment, index) in enumerate(updates)]
        for moment, index, what in sorted(todo):
            await storm.after(moment)
            uuid = uuids[index]
            if what == "delete":
                await cloud.delete(uuid)
                deleted.add(uuid)
            elif uuid not in deleted:
                await update(cloud, uuid, what)
                updated[uuid] = what
        await cloud.gone(sorted(deleted))
        left = sorted(set(uuids) - deleted)
        servers = await cloud.settled(left) if left else []
        for server in servers:
            assert server.metadata.get("last") == updated.get(server.uuid)
        await transport.settled()
        found = await findings(cloud, Promised(created=set(left), deleted=set(deleted)))
        assert found.clean, found.text()
        assert {server.state for server in servers} <= {State.ACTIVE}
        for uuid in left:
            await cloud.delete(uuid)
        await cloud.nothing_left()
