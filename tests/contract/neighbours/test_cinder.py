"""The adapter to Cinder keeps the contracts of volumes, over HTTP towards the twin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.contracts.neighbours.volumes import VolumesContract, VolumesContractBase
from skep.contracts.neighbours.volumes_of_users import VolumesOfUsersContract
from skep.contracts.neighbours.volumes_world import Volumes, VolumesPlace, VolumesWorld, blank, made_of
from skep.domain.block_devices import AskedDevice
from skep.domain.errors import BadRequest, Unavailable
from skep.domain.ids import ProjectId
from skep.neighbours.service_session import ServiceCredentials
from skep.neighbours.volumes.base import (
    AskedAttachment,
    AskedVolumes,
    EndedVolumes,
    VolumeLabel,
    VolumesRefused,
    WantedAttachments,
    WantedVolumes,
)
from skep.neighbours.volumes.cinder.of_users import ZoneRules
from skep_lab.cinder_twin.app import PAGE
from skep_lab.cinder_twin.served import SKEP, ServedTwin, grant, served_twin
from skep_lab.cinder_twin.store import SHARED_TYPE, TwinAttachment, TwinCaller
from tests.support.cinder import adapter


@pytest.fixture
async def twin(cloud: ServedNeighbours) -> AsyncIterator[ServedTwin]:
    async with served_twin(cloud) as twin:
        yield twin


class OverTwin:
    @pytest.fixture
    def place(self, twin: ServedTwin) -> VolumesPlace:
        return twin.place

    @pytest.fixture
    async def volumes(
        self, place: VolumesPlace, credentials: ServiceCredentials, clock: SteppedClock
    ) -> AsyncIterator[Volumes]:
        async with adapter(credentials, clock, place.url) as volumes:
            yield volumes


class TestOfServers(OverTwin, VolumesContract):
    pass


class TestOfUsers(OverTwin, VolumesOfUsersContract):
    pass


class TestOfTwin(OverTwin, VolumesContractBase):
    """What a real service cannot be told to do."""

    async def test_a_volume_that_cannot_be_made_in_the_end(self, world: VolumesWorld, twin: ServedTwin) -> None:
        server = world.server()
        wanted = world.wanted(server, blank())
        twin.store.becomes = "error"
        [[begun]] = await world.volumes.make([wanted])  # type: ignore[misc]
        assert not begun.is_ready

        async def refused() -> str:
            [found] = await world.volumes.make([wanted])
            return found.message if isinstance(found, VolumesRefused) else ""

        message = await eventually(refused, "the volume is not made")
        assert (begun.volume_id in message, "error" in message) == (True, True)
        assert await world.volumes.discard([world.ended(server)]) == [()]
        await world.becomes(begun.volume_id, "gone")
        twin.store.becomes = "available"
        [found] = await world.given(wanted)
        assert found.volume_id != begun.volume_id

    async def test_a_volume_that_works_goes_before_one_that_does_not(
        self, world: VolumesWorld, twin: ServedTwin
    ) -> None:
        server = world.server()
        label = VolumeLabel(server=server, position=0, ends=True)
        twin.store.becomes = "error"
        broken = await world.ask("POST", "volumes", {"volume": {"size": 1, "metadata": label.metadata()}})
        await world.becomes(broken["id"], "error")
        twin.store.becomes = "available"
        works = await world.volume(metadata=label.metadata())
        assert [one.volume_id for one in await world.given(world.wanted(server, blank()))] == [works]
        await world.becomes(broken["id"], "gone")

    async def test_more_volumes_than_one_answer_has(self, world: VolumesWorld, twin: ServedTwin) -> None:
        server, count = world.server(), 2 * PAGE + 1
        twin.store.looks = 0
        for position in range(count):
            label = VolumeLabel(server=server, position=position, ends=True)
            made = twin.store.create_volume(
                TwinCaller(project_id=world.project), {"size": 1, "metadata": label.metadata()}
            )
            assert made.project_id == world.project
        found = await world.given(world.wanted(server, *[blank()] * count))
        assert [one.position for one in found] == list(range(count))
        assert len(twin.store.volumes) == count

    @pytest.mark.parametrize("goes", [False, True])
    async def test_more_attachments_than_one_answer_has(
        self, world: VolumesWorld, twin: ServedTwin, monkeypatch: pytest.MonkeyPatch, goes: bool
    ) -> None:
        """All are found, also where the one that ends an answer goes before the next is asked for."""
        servers, count = [world.server() for _ in range(3)], 2 * PAGE
        caller = TwinCaller(project_id=world.project)
        twin.store.looks = 0
        for number in range(count):
            volume = twin.store.create_volume(caller, {"size": 1})
            volume.status = "available"
            fields = {"volume_uuid": volume.id, "instance_uuid": servers[number % 3]}
            twin.store.create_attachment(caller, fields)
        there, listed = list(twin.store.attachments), twin.store.attachments_of

        def lists(*given: Any, **said: Any) -> list[TwinAttachment]:
            found = list(listed(*given, **said))
            if goes and len(found) == count:
                twin.store.attachments.pop(there[PAGE])
            return found

        monkeypatch.setattr(twin.store, "attachments_of", lists)
        held = await world.volumes.held()
        assert sorted(one.id for some in held.values() for one in some) == sorted(there)
        assert {server: len(some) for server, some in held.items()} == dict(zip(servers, (34, 33, 33), strict=True))
        assert len((await world.volumes.of_servers([servers[1]]))[servers[1]]) == 33

    async def test_zones(
        self, world: VolumesWorld, twin: ServedTwin, credentials: ServiceCredentials, clock: SteppedClock
    ) -> None:
        usual, west = await world.volume(), await world.volume(availability_zone="west")
        rules = ZoneRules(cross_zone_attach=False, default_zone="nova")
        async with adapter(credentials, clock, twin.place.url, rules) as volumes:

            async def zone(*ids: str, asked: str | None = None) -> str | None:
                devices = tuple(AskedDevice(device=made_of("volume", one), where="server.imageRef") for one in ids)
                return (await volumes.choose(AskedVolumes(devices=devices, zone=asked), *world.asking())).zone

            assert [await zone(west), await zone(usual), await zone()] == ["west", None, None]
            assert [await zone(west, asked="west"), await zone(usual, asked="nova")] == ["west", "nova"]
            for ids, asked in (((west,), "nova"), ((west, usual), None), ((usual, west), None)):
                with pytest.raises(BadRequest, match="of availability zone"):
                    await zone(*ids, asked=asked)
            assert (await volumes.attachable(AskedAttachment(volume_id=west, zone="west"), *world.asking())).id == west
            with pytest.raises(BadRequest, match=r"volumeAttachment\.volumeId"):
                await volumes.attachable(AskedAttachment(volume_id=west, zone="nova"), *world.asking())
        for asked in (None, "nova"):
            devices = (AskedDevice(device=made_of("volume", west), where="server.imageRef"),)
            found = await world.volumes.choose(AskedVolumes(devices=devices, zone=asked), *world.asking())
            assert found.zone == asked

    async def test_a_volume_that_the_service_itself_moves(self, world: VolumesWorld, twin: ServedTwin) -> None:
        volume = await world.volume()
        assert not (await world.volumes.volume(volume, *world.asking())).migration_status
        twin.store.volumes[volume].migration_status = "migrating"
        assert (await world.volumes.volume(volume, *world.asking())).migration_status == "migrating"

    @pytest.mark.parametrize("failed", [False, True])
    async def test_what_comes_of_a_move_is_told_once(self, world: VolumesWorld, twin: ServedTwin, failed: bool) -> None:
        """A repeat, whose first answer was lost, finds that the service knows; one that is refused is no repeat."""
        server, volume = world.server(), await world.volume()
        others: list[str] = []
        await world.in_use(server, volume)
        twin.store.on_move = lambda _old, other, _servers: others.append(other.id)
        twin.store.retype(twin.store.volumes[volume], SHARED_TYPE, "on-demand")
        [other] = others
        [kept] = await world.volumes.reserve([WantedAttachments(instance=server, volume_ids=(other,))])
        assert isinstance(kept, tuple)
        refused = await world.volumes.end_move(volume, other, failed=True)
        assert isinstance(refused, VolumesRefused), "a volume that is attached does not go"
        assert "still attached" in refused.message
        if failed:
            await world.volumes.detach(kept)
        for _ in range(2):
            assert await world.volumes.end_move(volume, other, failed=failed) is None
        assert other not in twin.store.volumes
        assert twin.store.volumes[volume].migration_status == ("error" if failed else "success")
        has = {one.id: one.volume_id for one in (await world.volumes.of_servers([server]))[server]}
        assert (kept[0] in has, set(has.values())) == (not failed, {volume})

    async def test_a_project_in_which_skep_has_no_role(self, world: VolumesWorld) -> None:
        project = ProjectId(world.place.projects["service"])
        wanted = WantedVolumes(instance=world.server(), project_id=project, devices=(blank(),))
        with pytest.raises(Unavailable, match=f"no role in project {project}"):
            await world.volumes.make([wanted])
        ended = EndedVolumes(instance=wanted.instance, project_id=project)
        with pytest.raises(Unavailable, match=f"no role in project {project}"):
            await world.volumes.discard([ended])

    async def test_a_user_that_is_no_service(self, world: VolumesWorld, cloud: ServedNeighbours) -> None:
        await grant(cloud, SKEP, "service", taken=True)
        volume, server = await world.volume(), world.server()
        attachment = await world.in_use(server, volume)
        with pytest.raises(Unavailable, match="does not release a volume"):
            await world.volumes.detach([attachment])
        assert await world.attached(server) == [(volume, "attached")]
