"""What must hold of the volumes of servers: inherit `VolumesContract`, give it `place` and `volumes`."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.volumes_world import (
    CONNECTOR,
    Volumes,
    VolumesPlace,
    VolumesWorld,
    blank,
    made_of,
)
from skep.domain.block_devices import BlockDevice
from skep.domain.ids import InstanceUuid, new_uuid
from skep.neighbours.volumes.base import (
    DETACHING,
    FILLING,
    VolumeConnection,
    VolumeLabel,
    VolumesRefused,
    WantedAttachments,
    WantedBeside,
    WantedConnection,
)

LOCAL = BlockDevice(source_type="image", uuid=new_uuid(), boot_index=0)


class VolumesContractBase(abc.ABC):
    """What all of them have."""

    @pytest.fixture
    @abc.abstractmethod
    async def place(self) -> AsyncIterator[VolumesPlace]:
        """Give a volume service."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    @pytest.fixture
    @abc.abstractmethod
    async def volumes(self, place: VolumesPlace) -> AsyncIterator[Volumes]:
        """Give what knows the volumes of the service."""
        yield  # type: ignore[misc]  # abstract: inheritors give the adapter

    @pytest.fixture
    async def world(self, place: VolumesPlace, volumes: Volumes) -> AsyncIterator[VolumesWorld]:
        """Give the users of the service."""
        async with plain_client() as client:
            yield VolumesWorld(place, client, volumes)


class VolumesContract(VolumesContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.volumes.base.ServerVolumes`."""

    async def test_what_is_wanted_is_made_in_its_order(self, world: VolumesWorld) -> None:
        """Of an image, of a snapshot, of nothing; a user's volume as it is; what is local is left out."""
        brought = await world.volume()
        snapshot = await world.snapshot(brought)
        server = world.server()
        wanted = world.wanted(
            server,
            made_of("image", world.place.image_id, volume_size=2, boot_index=0),
            BlockDevice(source_type="blank", guest_format="swap", volume_size=1),
            made_of("snapshot", snapshot, delete_on_termination=False),
            made_of("volume", brought),
            blank(volume_type=world.place.shared_type),
        )
        found = await world.given(wanted)
        assert [(one.position, one.is_made, one.size) for one in found] == [
            (0, True, 2),
            (2, True, 1),
            (3, False, None),
            (4, True, 1),
        ]
        assert found[2].volume_id == brought
        for one in found:
            shown = await world.shown(one.volume_id)
            assert shown["status"] == "available"
            label = VolumeLabel.of(shown["metadata"])
            ends = one.position != 2
            assert label == (VolumeLabel(server=server, position=one.position, ends=ends) if one.is_made else None)
        image, of_snapshot, _, shared = [await world.shown(one.volume_id) for one in found]
        assert (image["bootable"], image["volume_image_metadata"]["image_id"]) == ("true", world.place.image_id)
        assert of_snapshot["snapshot_id"] == snapshot
        assert (shared["multiattach"], shared["name"]) == (True, f"{server}-blank-vol")

    async def test_a_repeat_returns_what_is_there(self, world: VolumesWorld) -> None:
        """Whatever it is used for meanwhile, of which only is said that it is not free any more."""
        server = world.server()
        wanted = world.wanted(server, LOCAL, blank(), blank())
        first = await world.given(wanted)
        assert await world.given(wanted) == first
        await world.reserved(server, first[0].volume_id)
        await world.in_use(server, first[1].volume_id)
        assert await world.given(wanted) == tuple(msgspec.structs.replace(one, is_free=False) for one in first)
        assert len(await world.made_for(server)) == 2

    async def test_a_volume_that_is_being_made_is_not_ready(self, world: VolumesWorld) -> None:
        """It is told as what it will be."""
        wanted = world.wanted(world.server(), blank(volume_size=2))
        [first] = await world.volumes.make([wanted])
        assert not isinstance(first, VolumesRefused)
        assert [(one.is_ready, one.size) for one in first] == [(False, 2)]
        assert [one.volume_id for one in await world.given(wanted)] == [one.volume_id for one in first]

    async def test_new_volumes_are_free_until_they_are_kept(self, world: VolumesWorld) -> None:
        """So they are kept without a look at what is there; nothing is said of a user's."""
        server, brought = world.server(), await world.volume()
        wanted = world.wanted(server, blank(), made_of("volume", brought), blank())
        made = await world.given(wanted)
        assert [one.is_free for one in made] == [True, False, True]
        new = tuple(one.volume_id for one in made if one.is_made)
        [kept] = await world.volumes.reserve([WantedAttachments(instance=server, volume_ids=new, are_free=True)])
        assert not isinstance(kept, VolumesRefused)
        assert await world.attached(server) == sorted((one, "reserved") for one in new)
        assert [one.is_free for one in await world.given(wanted)] == [False, False, False]
        assert await world.reserved(server, *new) == kept

    async def test_servers_without_volumes(self, world: VolumesWorld) -> None:
        """They get nothing, and others beside them what they want."""
        local, none, other = (world.server() for _ in range(3))
        found = await world.volumes.make([world.wanted(local, LOCAL), world.wanted(none), world.wanted(other, blank())])
        assert [not isinstance(one, VolumesRefused) and len(one) for one in found] == [0, 0, 1]

    async def test_many_servers_at_once(self, world: VolumesWorld) -> None:
        """Each answer stands where its server was named; a refused one hinders no other."""
        servers = [world.server() for _ in range(12)]
        wanted = [
            world.wanted(one, blank(), blank(volume_type="moon" if one is servers[5] else None)) for one in servers
        ]
        found = await world.volumes.make(wanted)
        assert [index for index, one in enumerate(found) if isinstance(one, VolumesRefused)] == [5]
        for one in (wanted[0], wanted[11]):
            made = await world.given(one)
            assert sorted(volume["id"] for volume in await world.made_for(one.instance)) == sorted(
                volume.volume_id for volume in made
            )
            await world.reserved(one.instance, *(volume.volume_id for volume in made))
        attached = await world.volumes.of_servers(servers)
        assert [len(attached[one]) for one in servers] == [2, *[0] * 10, 2]

    @pytest.mark.parametrize(
        "device",
        [
            blank(volume_type="moon"),
            blank(volume_size=0),
            made_of("snapshot", "0728a01f-33a5-40b8-b366-c070e4047662"),
            made_of("image", "0728a01f-33a5-40b8-b366-c070e4047662", volume_size=1),
        ],
        ids=["type", "size", "snapshot", "image"],
    )
    async def test_what_cannot_be_made(self, world: VolumesWorld, device: BlockDevice) -> None:
        """It is refused with a reason, each time; what was made beside it goes."""
        server = world.server()
        wanted = world.wanted(server, blank(), device)
        for _ in range(2):
            assert await world.refused(wanted)
        assert len(await world.made_for(server)) == 1
        await self._discarded(world, server)

    async def test_a_zone_that_is_none(self, world: VolumesWorld) -> None:
        """A volume is made where it is said, or not at all."""
        assert "moon" in await world.refused(world.wanted(world.server(), blank(), zone="moon"))
        [made] = await world.given(world.wanted(world.server(), blank(), zone=world.place.zone))
        assert (await world.shown(made.volume_id))["availability_zone"] == world.place.zone

    async def test_over_quota(self, world: VolumesWorld) -> None:
        """The project's, not that of Skep's own user."""
        path = f"os-quota-sets/{world.project}"
        await world.volume()
        before = (await world.ask("GET", f"{path}?usage=True", by="admin"))["volumes"]
        full = {"volumes": before["in_use"] + before["reserved"]}
        await world.ask("PUT", path, {"quota_set": full}, by="admin")
        try:
            assert "xceed" in await world.refused(world.wanted(world.server(), blank()))
        finally:
            await world.ask("PUT", path, {"quota_set": {"volumes": before["limit"]}}, by="admin")

    async def test_a_volume_that_was_made_twice(self, world: VolumesWorld) -> None:
        """One of them is the server's: the one that it has, if there is one. The other goes."""
        server = world.server()
        wanted = world.wanted(server, blank())
        label = VolumeLabel(server=server, position=0, ends=True)
        first, second = [await world.volume(metadata=label.metadata()) for _ in range(2)]
        await world.reserved(server, second)
        [found] = await world.given(wanted)
        assert found.volume_id == second
        await world.becomes(first, "gone")

    async def test_labels_of_other_projects_are_nothing(self, world: VolumesWorld) -> None:
        """Whoever makes a volume says in its metadata what he likes."""
        server = world.server()
        label = VolumeLabel(server=server, position=0, ends=True)
        theirs = await world.volume(by="admin", metadata=label.metadata())
        [found] = await world.given(world.wanted(server, blank()))
        assert found.volume_id != theirs
        await self._discarded(world, server)
        assert await world.status(theirs, by="admin") == "available"

    async def test_a_copy_has_the_metadata_of_a_volume(self, world: VolumesWorld) -> None:
        """It is its user's all the same: not taken for the volume, and not deleted unless that is said of it."""
        server = world.server()
        wanted = world.wanted(server, blank())
        [found] = await world.given(wanted)
        said = (await world.shown(found.volume_id))["metadata"]
        assert said["skep_volume"] == found.volume_id
        copy = await world.volume(metadata=said)
        assert await world.given(wanted) == (found,)
        assert await world.volumes.discard([world.ended(server)]) == [()]
        await world.becomes(found.volume_id, "gone")
        [anew] = await world.given(wanted)
        assert anew.volume_id != copy
        assert await world.status(copy) == "available"

    async def test_a_volume_that_is_let_go(self, world: VolumesWorld) -> None:
        """It is its project's, and ends with the server only where that is said of it."""
        server, project = world.server(), world.wanted(world.server()).project_id
        first, second = await world.given(world.wanted(server, blank(), blank()))
        for one in (first, second):
            await world.volumes.let_go(project, one.volume_id)
        assert await world.volumes.discard([world.ended(server, ended=(first.volume_id,))]) == [()]
        await world.becomes(first.volume_id, "gone")
        assert await world.status(second.volume_id) == "available"
        await world.volumes.let_go(project, first.volume_id)

    async def test_what_was_made_and_let_go_stays(self, world: VolumesWorld) -> None:
        """Its user has it now, whatever a row says of it that went back in time."""
        server, project = world.server(), world.wanted(world.server()).project_id
        left, goes = await world.given(world.wanted(server, blank(), blank(delete_on_termination=False)))
        await world.volumes.let_go(project, left.volume_id)
        is_let_go = [await world.volumes.is_let_go(server, one.volume_id) for one in (left, goes)]
        assert is_let_go == [True, False]
        made = (left.volume_id, goes.volume_id)
        assert await world.volumes.discard([world.ended(server, ended=made, made=made)]) == [()]
        await world.becomes(goes.volume_id, "gone")
        assert not await world.volumes.is_let_go(server, goes.volume_id)
        assert await world.status(left.volume_id) == "available"

    async def test_from_reserved_to_released(self, world: VolumesWorld) -> None:
        """Each step is known to the service, and may be repeated."""
        volume, server = await world.volume(), world.server()
        [attachment] = await world.reserved(server, volume)
        assert await world.reserved(server, volume) == (attachment,)
        assert await world.attached(server) == [(volume, "reserved")]
        assert await world.status(volume) == "reserved"
        wanted = WantedConnection(attachment_id=attachment, connector=CONNECTOR)
        [not_yet] = await world.volumes.connections([attachment])
        assert isinstance(not_yet, VolumesRefused)
        for _ in range(2):
            [connection] = await world.volumes.connect([wanted])
            assert await world.volumes.connections([attachment]) == [connection]
            assert isinstance(connection, VolumeConnection)
            assert (connection.attachment_id, connection.driver) == (attachment, "iscsi")
            assert connection.data["target_iqn"].endswith(volume)
            assert "driver_volume_type" not in connection.data
            assert "target" not in repr(connection)
        for _ in range(2):
            assert await world.volumes.complete([attachment]) == [None]
            assert await world.status(volume) == "in-use"
        assert await world.attached(server) == [(volume, "attached")]
        assert await world.reserved(server, volume) == (attachment,)
        for _ in range(2):
            await world.volumes.detach([attachment])
            assert await world.attached(server) == []
        assert await world.status(volume) == "available"

    async def test_volumes_are_reserved_in_their_order(self, world: VolumesWorld) -> None:
        """Whatever was reserved before."""
        first, second, third = [await world.volume() for _ in range(3)]
        server = world.server()
        [of_second] = await world.reserved(server, second)
        found = await world.reserved(server, third, second, first)
        assert found[1] == of_second
        assert len(set(found)) == 3
        assert await world.reserved(server, second, first) == (found[1], found[2])
        assert await world.reserved(server) == ()

    async def test_all_volumes_of_a_server_or_none(self, world: VolumesWorld) -> None:
        """What another server has is refused, and nothing is kept beside it."""
        free, taken = await world.volume(), await world.volume()
        other, server = world.server(), world.server()
        await world.in_use(other, taken)
        for volume_ids in ((free, taken), (taken, free), (free, new_uuid())):
            [refused] = await world.volumes.reserve([WantedAttachments(instance=server, volume_ids=volume_ids)])
            assert isinstance(refused, VolumesRefused)
            assert refused.message
            assert await world.attached(server) == []
            assert await world.status(free) == "available"
        assert await world.attached(other) == [(taken, "attached")]

    async def test_what_a_guest_uses_stays(self, world: VolumesWorld) -> None:
        """Though another volume is refused in the same call."""
        used, server = await world.volume(), world.server()
        await world.in_use(server, used)
        wanted = WantedAttachments(instance=server, volume_ids=(used, new_uuid()))
        assert isinstance((await world.volumes.reserve([wanted]))[0], VolumesRefused)
        assert await world.attached(server) == [(used, "attached")]

    async def test_one_volume_for_two_servers(self, world: VolumesWorld) -> None:
        """One has it, also when both ask at once."""
        volume = await world.volume()
        wanted = [WantedAttachments(instance=world.server(), volume_ids=(volume,)) for _ in range(2)]
        found = await asyncio.gather(*(world.volumes.reserve([one]) for one in wanted))
        assert sorted(isinstance(one, VolumesRefused) for [one] in found) == [False, True]

    async def test_a_volume_that_servers_share(self, world: VolumesWorld) -> None:
        """Each has an attachment of its own."""
        volume = await world.volume(volume_type=world.place.shared_type)
        servers = [world.server() for _ in range(2)]
        attachments = [await world.in_use(one, volume) for one in servers]
        assert len(set(attachments)) == 2
        await world.volumes.detach(attachments[:1])
        assert await world.status(volume) == "in-use"
        assert await world.attached(servers[1]) == [(volume, "attached")]

    async def test_a_shared_volume_that_another_server_just_gets(self, world: VolumesWorld) -> None:
        """It is refused to a third one; the server that has it keeps its attachment, and waits for the next one."""
        volume = await world.volume(volume_type=world.place.shared_type)
        mine, other, third = [world.server() for _ in range(3)]
        old = await world.in_use(mine, volume)
        [kept] = await world.reserved(other, volume)
        [connection] = await world.volumes.connect([WantedConnection(attachment_id=kept, connector=CONNECTOR)])
        assert isinstance(connection, VolumeConnection)
        for server, beside in ((third, ()), (mine, (old,))):
            wanted = WantedAttachments(instance=server, volume_ids=(volume,), beside=beside)
            [refused] = await world.volumes.reserve([wanted])
            assert isinstance(refused, VolumesRefused)
            assert refused.is_passing is (server == mine)
        assert await world.attached(mine) == [(volume, "attached")]
        assert await world.volumes.complete([kept]) == [None]
        [new] = await world.reserved(mine, volume, beside=(old,))
        assert new != old

    async def test_an_attachment_beside_the_one_that_is_left(self, world: VolumesWorld) -> None:
        """For the next host of a server; the volume is never free in between."""
        volume, server = await world.volume(), world.server()
        old = await world.in_use(server, volume)
        [new] = await world.reserved(server, volume, beside=(old,))
        assert new != old
        assert await world.reserved(server, volume, beside=(old,)) == (new,)
        there = WantedConnection(attachment_id=new, connector={**CONNECTOR, "host": "host2"})
        [refused] = await world.volumes.connect([there])
        assert isinstance(refused, VolumesRefused)
        await world.volumes.detach([old])
        assert await world.status(volume) != "available"
        assert await world.reserved(server, volume) == (new,)
        [connection] = await world.volumes.connect([there])
        assert isinstance(connection, VolumeConnection)

    @pytest.mark.parametrize("stays", [False, True], ids=["goes", "stays"])
    async def test_a_volume_on_two_hosts_of_its_server(self, world: VolumesWorld, stays: bool) -> None:
        """While the server goes from one to the other; then either attachment is left, and the volume in use."""
        volume, server = await world.volume(), world.server()
        first = await world.in_use(server, volume)
        wanted = WantedBeside(instance=server, volume_id=volume, connector={**CONNECTOR, "host": "host2"})
        [connection] = await world.volumes.connect_beside([wanted])
        assert isinstance(connection, VolumeConnection)
        second = connection.attachment_id
        assert await world.volumes.complete([second]) == [None]
        assert await world.attached(server) == [(volume, "attached")] * 2
        assert await world.status(volume) == "in-use"
        found = await world.volumes.connections([first, second])
        assert [isinstance(one, VolumeConnection) for one in found] == [True, True]
        await world.volumes.detach([second if stays else first])
        [left] = (await world.volumes.of_servers([server]))[server]
        assert (left.id, left.status) == (first if stays else second, "attached")
        assert await world.status(volume) == "in-use"

    async def test_a_volume_of_another_server_goes_to_no_second_host(self, world: VolumesWorld) -> None:
        """It is refused, and stays as it was."""
        volume, server = await world.volume(), world.server()
        await world.in_use(server, volume)
        wanted = WantedBeside(instance=world.server(), volume_id=volume, connector={**CONNECTOR, "host": "host2"})
        [refused] = await world.volumes.connect_beside([wanted])
        assert isinstance(refused, VolumesRefused)
        assert await world.attached(server) == [(volume, "attached")]

    async def test_an_attachment_that_was_made_twice(self, world: VolumesWorld) -> None:
        """One is the server's, the one that its guest uses; others go, however many they are."""
        volume, server = await world.volume(), world.server()
        first = await world.in_use(server, volume)
        others: tuple[str, ...] = ()
        for _ in range(4):
            others += await world.reserved(server, volume, beside=(first, *others))
        assert len(await world.attached(server)) == 5
        assert await world.reserved(server, volume) == (first,)
        assert await world.attached(server) == [(volume, "attached")]

    async def test_a_connection_beside_an_attachment_that_was_made_twice(self, world: VolumesWorld) -> None:
        """A repeat may be refused; it is not once the other attachment is gone."""
        volume, server = await world.volume(), world.server()
        [first] = await world.reserved(server, volume)
        wanted = WantedConnection(attachment_id=first, connector=CONNECTOR)
        await world.reserved(server, volume, beside=(first,))
        assert isinstance((await world.volumes.connect([wanted]))[0], VolumeConnection)
        assert isinstance((await world.volumes.connect([wanted]))[0], VolumesRefused)
        assert await world.reserved(server, volume) == (first,)
        assert isinstance((await world.volumes.connect([wanted]))[0], VolumeConnection)
        assert await world.volumes.complete([first]) == [None]
        assert await world.attached(server) == [(volume, "attached")]

    async def test_a_volume_that_is_being_detached(self, world: VolumesWorld) -> None:
        """It is seen, refused a second time, and goes on as before when it is rolled back."""
        volume, server = await world.volume(), world.server()
        attachment = await world.in_use(server, volume)
        for _ in range(2):
            assert await world.volumes.begin_detaching(volume) is None
            assert await world.status(volume) == DETACHING
            assert isinstance(await world.volumes.begin_detaching(volume), VolumesRefused)
            await world.volumes.roll_detaching(volume)
            assert await world.status(volume) == "in-use"
            await world.volumes.roll_detaching(volume)
        assert await world.volumes.begin_detaching(volume) is None
        await world.volumes.detach([attachment])
        assert await world.status(volume) == "available"
        assert isinstance(await world.volumes.begin_detaching(volume), VolumesRefused)
        await world.volumes.roll_detaching(volume)
        assert await world.status(volume) == "available"
        gone = new_uuid()
        assert isinstance(await world.volumes.begin_detaching(gone), VolumesRefused)
        await world.volumes.roll_detaching(gone)

    async def test_a_volume_that_is_filled_anew(self, world: VolumesWorld) -> None:
        """It is its server's all the while, and what it was afterwards."""
        volume, server = await world.volume(), world.server()
        [attachment] = await world.reserved(server, volume)
        assert await world.volumes.status(volume) == "reserved"
        assert await world.volumes.reimage(volume, world.place.image_id) is None

        async def filled() -> bool:
            status = await world.volumes.status(volume)
            assert status in (FILLING, "reserved")
            return status == "reserved"

        await eventually(filled, "the volume is filled")
        assert (await world.shown(volume))["volume_image_metadata"]["image_id"] == world.place.image_id
        assert await world.reserved(server, volume) == (attachment,)
        [connection] = await world.volumes.connect([WantedConnection(attachment_id=attachment, connector=CONNECTOR)])
        assert isinstance(connection, VolumeConnection)

    async def test_what_cannot_be_filled_anew(self, world: VolumesWorld) -> None:
        """What a guest uses, what two attachments keep, what is not there; nor with an image that is not there."""
        used, twice, kept, server = await world.volume(), await world.volume(), await world.volume(), world.server()
        await world.in_use(server, used)
        first = await world.reserved(server, twice)
        await world.reserved(server, twice, beside=first)
        await world.reserved(server, kept)
        image, gone = world.place.image_id, new_uuid()
        for volume, wanted in ((used, image), (twice, image), (gone, image), (kept, gone)):
            assert isinstance(await world.volumes.reimage(volume, wanted), VolumesRefused)
        assert [await world.volumes.status(one) for one in (used, twice, kept, gone)] == [
            "in-use",
            "reserved",
            "reserved",
            None,
        ]

    async def test_attachments_that_are_gone(self, world: VolumesWorld) -> None:
        """They cannot be used; to release them is no mistake."""
        gone = new_uuid()
        [connection] = await world.volumes.connect([WantedConnection(attachment_id=gone, connector=CONNECTOR)])
        assert isinstance(connection, VolumesRefused)
        [connection] = await world.volumes.connections([gone])
        assert isinstance(connection, VolumesRefused)
        [completed] = await world.volumes.complete([gone])
        assert isinstance(completed, VolumesRefused)
        await world.volumes.detach([gone])

    async def test_what_was_made_ends_with_its_server(self, world: VolumesWorld) -> None:
        """Unless it was to stay; what is a user's stays."""
        brought, server = await world.volume(), world.server()
        wanted = world.wanted(server, blank(), blank(delete_on_termination=False), made_of("volume", brought))
        ends, stays, _ = await world.given(wanted)
        for _ in range(2):
            assert await world.volumes.discard([world.ended(server)]) == [()]
            await world.becomes(ends.volume_id, "gone")
        assert await world.status(stays.volume_id) == "available"
        assert await world.status(brought) == "available"

    async def test_a_volume_of_a_user_that_is_to_go(self, world: VolumesWorld) -> None:
        """It goes, unless another server has it by then."""
        server, other = world.server(), world.server()
        goes, used, free = [await world.volume() for _ in range(3)]
        await world.in_use(other, used)
        [[left]] = await world.volumes.discard([world.ended(server, ended=(goes, used))])
        assert (left.volume_id, left.is_passing) == (used, False)
        await world.becomes(goes, "gone")
        assert [await world.status(one) for one in (used, free)] == ["in-use", "available"]
        assert len(await world.volumes.discard([world.ended(server, ended=(goes,))])) == 1

    async def test_what_is_said_last_of_a_volume(self, world: VolumesWorld) -> None:
        """It goes, or stays, whatever was said when it was made."""
        server = world.server()
        first, second = await world.given(world.wanted(server, blank(), blank(delete_on_termination=False)))
        ended = world.ended(server, kept=(first.volume_id,), ended=(second.volume_id,))
        assert await world.volumes.discard([ended]) == [()]
        await world.becomes(second.volume_id, "gone")
        assert await world.status(first.volume_id) == "available"

    async def test_a_volume_that_stays_and_was_made_twice(self, world: VolumesWorld) -> None:
        """Which of both is the server's is for its row to say; without that word both stay."""
        server = world.server()
        [made] = await world.given(world.wanted(server, blank(delete_on_termination=False)))
        label = VolumeLabel(server=server, position=0, ends=False)
        late = await world.volume(metadata=label.metadata())
        assert await world.volumes.discard([world.ended(server)]) == [()]
        assert [await world.status(one) for one in (made.volume_id, late)] == ["available"] * 2
        assert await world.volumes.discard([world.ended(server, kept=(made.volume_id,))]) == [()]
        await world.becomes(late, "gone")
        assert await world.status(made.volume_id) == "available"

    async def test_a_volume_that_is_in_use_ends_later(self, world: VolumesWorld) -> None:
        """It is told what is left of a server, and that it is to be asked again."""
        server, other = world.server(), world.server()
        [found] = await world.given(world.wanted(server, blank()))
        attachment = await world.in_use(server, found.volume_id)
        left, nothing = await world.volumes.discard([world.ended(server), world.ended(other)])
        assert [(one.volume_id, one.is_passing) for one in left] == [(found.volume_id, True)]
        assert nothing == ()
        await world.volumes.detach([attachment])
        await self._discarded(world, server)

    async def test_a_volume_of_which_its_user_made_a_snapshot(self, world: VolumesWorld) -> None:
        """It stays for the snapshot's sake, and not only for a while."""
        server = world.server()
        [found] = await world.given(world.wanted(server, blank()))
        await world.snapshot(found.volume_id)
        [[left]] = await world.volumes.discard([world.ended(server)])
        assert (left.volume_id, left.is_passing) == (found.volume_id, False)
        assert left.message

    async def test_what_is_being_made_ends_later(self, world: VolumesWorld) -> None:
        """A server may end while its volumes are made."""
        server = world.server()
        await world.volumes.make([world.wanted(server, blank())])
        [left] = await world.volumes.discard([world.ended(server)])
        assert all(one.is_passing for one in left)
        await self._discarded(world, server)

    async def _discarded(self, world: VolumesWorld, server: InstanceUuid) -> None:
        """Wait until nothing is left that was made for a server."""

        async def gone() -> bool:
            [left] = await world.volumes.discard([world.ended(server)])
            found: list[Any] = await world.made_for(server)
            return not left and not found

        await eventually(gone, "nothing is left of the server's volumes")
