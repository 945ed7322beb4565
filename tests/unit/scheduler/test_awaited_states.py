"""Under a new epoch nobody is refused for want of another service's states before that service could write them."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.namespaces import Namespace, NamespaceField, Schema
from skep.messages.to_scheduler import (
    AssertClaims,
    HostReport,
    Member,
    PublishOperatorState,
    SelectDestinations,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.messages.to_scheduler_namespaces import PublishNamespaces, StateUpdate, UpdateNamespaceStates
from skep.placement.knowledge import STATES_AWAITED_SECONDS, STATES_FOLLOW_SECONDS
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

CELL, NODE = CellUuid("cell-1"), NodeUuid("n0")
VOLUME = Namespace(name="volume", schema=Schema(fields={"volumes": NamespaceField(type="strings")}))
WANTED = {"same_host_as_volume": "v1"}


class Cloud:
    """One cell with one host, a scheduler that reads volumes, and a clock."""

    def __init__(self, usage: Any, spec: Any) -> None:
        self.now = 0.0
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.settings = SchedulerSettings(filters=("ComputeFilter", "VolumeFilter"))
        self.service = SchedulerService(
            self.transport, self.backend, self.settings, Clock(), monotonic=lambda: self.now
        )
        self._usage, self._spec = usage, spec

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def tell_all(self) -> None:
        wish = HostIntent(node=NODE, host="h0", cell=CELL)
        await self.call(PublishOperatorState(hosts=(wish,), aggregates=(), cells=(Cell(uuid=CELL, name="one"),)))
        await self.call(PublishNamespaces(namespaces=(VOLUME,)))
        epoch = await self.beat()
        await self.call(AssertClaims(cell=CELL, epoch=epoch, claims=()))
        report = HostReport(node=NODE, cell=CELL, incarnation=1, seq=1, usage=self._usage("h0"))
        await self.call(UpdateHostState(reports=(report,)))

    async def beat(self) -> str:
        epoch: str = (await self.call(Beat(cell=CELL, heard=(NODE,)))).epoch
        return epoch

    async def tell_volume(self) -> None:
        update = StateUpdate(key="h0", incarnation=1, seq=1, state={"volumes": ["v1"]})
        reply = await self.call(UpdateNamespaceStates(namespace="volume", updates=(update,)))
        assert [answer.refused for answer in reply.answers] == [None]

    async def select(self, instance: str, **spec: Any) -> Any:
        members = (Member(InstanceUuid(instance), 1),)
        wanted = self._spec(**{"scheduler_hints": WANTED, **spec})
        return (await self.call(SelectDestinations(spec=wanted, members=members))).decisions[0]


@pytest.fixture
async def cloud(usage: Any, spec: Any) -> Any:
    cloud = Cloud(usage, spec)
    await cloud.service.start()
    await cloud.tell_all()
    yield cloud
    await cloud.service.stop()


async def test_a_server_waits_for_the_states_that_a_wipe_took(cloud: Cloud) -> None:
    await cloud.tell_volume()
    assert isinstance(await cloud.select("a"), Placed)
    cloud.backend.wipe()
    await cloud.beat()
    await cloud.tell_all()
    waiting = await cloud.select("b")
    assert isinstance(waiting, NotReady)
    assert "volume" in waiting.reason
    await cloud.tell_volume()
    assert isinstance(await cloud.select("b"), Placed)


async def test_it_waits_only_where_states_would_help(cloud: Cloud, flavor: Any) -> None:
    assert isinstance(await cloud.select("a", flavor=flavor(vcpus=1000)), NoValidHost), "no state makes room"
    assert isinstance(await cloud.select("b", scheduler_hints={}), Placed), "nothing of it is read"


async def test_once_a_service_has_told_its_states_what_they_do_not_say_is_not_waited_for(cloud: Cloud) -> None:
    await cloud.tell_volume()
    elsewhere = {"same_host_as_volume": "v2"}
    await cloud.beat()
    assert isinstance(await cloud.select("a", scheduler_hints=elsewhere), NotReady), "more states may follow"
    cloud.now += STATES_FOLLOW_SECONDS
    await cloud.beat()
    assert isinstance(await cloud.select("a", scheduler_hints=elsewhere), NoValidHost)


async def test_it_does_not_wait_for_ever(cloud: Cloud) -> None:
    assert isinstance(await cloud.select("a"), NotReady)
    cloud.now += STATES_AWAITED_SECONDS + 1
    await cloud.beat()
    assert isinstance(await cloud.select("a"), NoValidHost)
