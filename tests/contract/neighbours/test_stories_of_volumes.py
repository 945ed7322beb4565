"""Servers come and go while Cinder fails at random: in the end each has what it is to have once, and then nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.contracts.neighbours.volumes_world import CONNECTOR, VolumesWorld, blank, made_of
from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid
from skep.neighbours.service_session import ServiceCredentials
from skep.neighbours.volumes.base import (
    VolumeConnection,
    VolumesRefused,
    WantedAttachments,
    WantedConnection,
    WantedVolumes,
)
from skep_lab.cinder_twin.served import ServedTwin, served_twin
from skep_lab.faulty_service import FaultyService, Mishap, faulty_service
from tests.support.cinder import adapter

OFTEN = 0.2
"""Share of the requests that a fault meets."""
MOST_TRIES = 300


@pytest.fixture
async def twin(cloud: ServedNeighbours) -> AsyncIterator[ServedTwin]:
    async with served_twin(cloud) as twin:
        yield twin


@pytest.fixture
async def cinder(twin: ServedTwin) -> AsyncIterator[FaultyService]:
    async with faulty_service(twin.place.url.removesuffix("/v3")) as service:
        yield service


@pytest.fixture
async def world(
    twin: ServedTwin, cinder: FaultyService, credentials: ServiceCredentials, clock: SteppedClock
) -> AsyncIterator[VolumesWorld]:
    async with (
        adapter(credentials, clock, f"{cinder.url}/v3") as volumes,
        plain_client() as client,
    ):
        yield VolumesWorld(twin.place, client, volumes)


class Story:
    """One server after the other is built and deleted, each call repeated until it is answered."""

    def __init__(self, world: VolumesWorld, twin: ServedTwin, wild: random.Random) -> None:
        self.world = world
        self.twin = twin
        self.wild = wild
        self.attached: dict[InstanceUuid, tuple[str, ...]] = {}
        self.unanswered = 0

    async def build(self, server: InstanceUuid, brought: str) -> WantedVolumes:
        """Give a server two volumes of its own and one of its user's."""
        devices = (blank(), made_of("volume", brought), blank(delete_on_termination=False))
        wanted = self.world.wanted(server, *devices)
        volumes = self.world.volumes
        for _ in range(MOST_TRIES):
            self._come_late(server)
            try:
                [made] = await volumes.make([wanted])
                assert not isinstance(made, VolumesRefused), made
                if not all(one.is_ready for one in made):
                    continue
                ids = tuple(one.volume_id for one in made)
                [reserved] = await volumes.reserve([WantedAttachments(instance=server, volume_ids=ids)])
                assert not isinstance(reserved, VolumesRefused), reserved
                for attachment in reserved:
                    asked = WantedConnection(attachment_id=attachment, connector=CONNECTOR)
                    [connection] = await volumes.connect([asked])
                    assert isinstance(connection, VolumeConnection), connection
                assert await volumes.complete(reserved) == [None] * 3
            except Unavailable:
                self.unanswered += 1
                continue
            self.attached[server] = ids
            return wanted
        raise AssertionError(f"no build within {MOST_TRIES} tries")

    def _come_late(self, server: InstanceUuid) -> None:
        """Let a POST that was given up make its volume now."""
        made = [one for one in self.twin.store.volumes.values() if one.metadata.get("skep_server") == server]
        if made and server not in self.attached and self.wild.random() < 0.3:
            again = self.wild.choice(made)
            metadata = {key: value for key, value in again.metadata.items() if key != "skep_volume"}
            late = msgspec.structs.replace(again, id=self._new_id(), status="available", becomes="", metadata=metadata)
            self.twin.store.volumes[late.id] = late

    def _new_id(self) -> str:
        return f"{self.wild.getrandbits(32):08x}-0000-4000-8000-{self.wild.getrandbits(48):012x}"

    async def delete(self, server: InstanceUuid) -> None:
        """Take all from a server that it has."""
        volumes = self.world.volumes
        for _ in range(MOST_TRIES):
            try:
                there = (await volumes.of_servers([server]))[server]
                await volumes.detach([one.id for one in there])
                [left] = await volumes.discard([self.world.ended(server, kept=self.attached[server][2:])])
            except Unavailable:
                self.unanswered += 1
                continue
            if not left:
                return
        raise AssertionError(f"no delete within {MOST_TRIES} tries")


@pytest.mark.parametrize("fault", [Mishap.LOST, Mishap.ERROR, Mishap.LIKELY, Mishap.CUT], ids=lambda fault: fault.name)
@pytest.mark.parametrize("seed", range(2))
async def test_a_story(world: VolumesWorld, twin: ServedTwin, cinder: FaultyService, fault: Mishap, seed: int) -> None:
    wild = random.Random(seed)
    story = Story(world, twin, wild)
    servers = [world.server() for _ in range(3)]
    brought = [await world.volume() for _ in servers]
    await cinder.fail(fault, lambda _method, _path: wild.random() < OFTEN)
    await asyncio.gather(*(story.build(*one) for one in zip(servers, brought, strict=True)))
    for server in servers:
        there = sorted((one.volume_id, one.status) for one in twin.store.attachments.values() if one.instance == server)
        assert there == sorted((volume, "attached") for volume in story.attached[server])
    await asyncio.gather(*(story.delete(server) for server in servers))
    await cinder.heal()
    assert story.unanswered, "no fault met anything"
    assert twin.store.attachments == {}

    async def ended() -> bool:
        there = {one["id"] for server in servers for one in await world.made_for(server)}
        return there == {volumes[2] for volumes in story.attached.values()}

    await eventually(ended, "what was made for servers has ended, but for what stays")
    for volumes in story.attached.values():
        assert [await world.status(one) for one in volumes] == ["gone", "available", "available"]
