"""What every service must do that makes images of servers: inherit `ImageRecordsContract`, give it a `records` fixture.

The images are those of Skep's own image service, which answers over HTTP meanwhile (`cloud`).
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

import msgspec
import pytest

from skep.contracts.neighbours.contract import ServedContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.database.api.images import StoredImage, Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from skep.domain.ids import ProjectId, RequestId, new_uuid
from skep.domain.images import Discarded, NewImage, backup_properties
from skep.neighbours.images.base import ImageRecords
from skep.standalone.images.fields import PatchOperation

MINE, EVERYBODY = Viewer(project_id="mine"), Viewer(project_id=None, is_admin=True)


class ImageRecordsContract(ServedContract, abc.ABC):
    """Tests of the port `skep.neighbours.images.base.ImageRecords`."""

    @pytest.fixture
    @abc.abstractmethod
    async def records(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageRecords]:
        """Give a service that makes images in `cloud`."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    async def test_a_new_image_waits_for_its_bytes(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """It belongs to its project alone, and says what it was told."""
        new = _new()
        await records.create(new)
        image = await cloud.images.get(new.id, MINE)
        assert (image.status, image.visibility, image.owner) == ("queued", "private", "mine")
        assert (image.name, image.disk_format, image.container_format) == ("of a server", "raw", "bare")
        assert (image.min_disk, image.min_ram, image.properties) == (2, 64, {"image_type": "snapshot"})
        with pytest.raises(NotFound):
            await cloud.images.get(new.id, Viewer(project_id="theirs"))

    async def test_an_image_that_has_no_bytes_is_active(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """Its properties say all of it; nothing takes it for one that waits."""
        new = _new()
        await records.create(new)
        context = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId(new.owner))
        await records.activate(new.id, context)
        image = await cloud.images.get(new.id, MINE)
        assert (image.status, image.size) == ("active", 0)
        with pytest.raises(Conflict):
            await records.activate(new.id, context)
        assert await records.discard(new.id) is Discarded.STORED

    async def test_an_id_is_used_once(self, records: ImageRecords) -> None:
        """Nobody's image is made anew, not even one that is gone."""
        new = _new()
        await records.create(new)
        with pytest.raises(Conflict):
            await records.create(new)
        assert await records.discard(new.id) is Discarded.GONE
        with pytest.raises(Conflict):
            await records.create(new)

    async def test_what_the_service_does_not_take(self, records: ImageRecords) -> None:
        """It is refused as what a client sent."""
        with pytest.raises(BadRequest):
            await records.create(msgspec.structs.replace(_new(), disk_format="paper"))

    async def test_properties_change_no_field(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """A property that is named like a field is none."""
        new = _new(owner="theirs", visibility="public", id=new_uuid())
        await records.create(new)
        image = await cloud.images.get(new.id, MINE)
        assert (image.owner, image.visibility) == ("mine", "private")

    async def test_an_image_without_bytes_is_discarded(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """A repeat finds it gone, and so is one that never was."""
        new = _new()
        await records.create(new)
        for _ in range(2):
            assert await records.discard(new.id) is Discarded.GONE
            assert await _there(cloud, new.id) is None
        assert await records.discard(new_uuid()) is Discarded.GONE

    async def test_an_image_with_bytes_stays(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """Whoever comes to discard it is too late."""
        new = _new()
        await records.create(new)
        await cloud.images.upload(new.id, _bytes(), MINE)
        assert await records.discard(new.id) is Discarded.STORED
        found = await _there(cloud, new.id)
        assert found is not None
        assert found.status == "active"

    async def test_a_protected_image_stays(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """Its user wants it so."""
        new = _new()
        await records.create(new)
        await cloud.images.patch(new.id, [PatchOperation(op="replace", path="/protected", value=True)], MINE)
        assert await records.discard(new.id) is Discarded.PROTECTED
        assert await _there(cloud, new.id) is not None

    async def test_an_image_is_deleted_with_its_bytes(self, cloud: ServedNeighbours, records: ImageRecords) -> None:
        """A repeat finds it gone; one that its user protects stays."""
        new, kept = _new(), _new()
        for one in (new, kept):
            await records.create(one)
            await cloud.images.upload(one.id, _bytes(), MINE)
        await cloud.images.patch(kept.id, [PatchOperation(op="replace", path="/protected", value=True)], MINE)
        for _ in range(2):
            await records.delete(new.id)
            assert await _there(cloud, new.id) is None
        with pytest.raises(Forbidden):
            await records.delete(kept.id)
        assert await _there(cloud, kept.id) is not None

    async def test_backups_are_those_of_one_server_type_and_project(
        self, cloud: ServedNeighbours, records: ImageRecords, clock: SteppedClock
    ) -> None:
        """The newest first; without those that have no bytes yet."""
        made = []
        for more in ({}, {}, {"backup_type": "a&b"}, {"instance_uuid": "other"}, {"image_type": "snapshot"}):
            new = _new(**{**backup_properties("server", "daily"), **more})
            await records.create(new)
            await cloud.images.upload(new.id, _bytes(), MINE)
            clock.advance(1)
            made.append(new.id)
        await records.create(_new(**backup_properties("server", "daily")))
        assert await records.backups("mine", "server", "daily") == [made[1], made[0]]
        assert await records.backups("mine", "server", "a&b") == [made[2]]
        assert await records.backups("theirs", "server", "daily") == []

    async def test_nothing_is_found_of_nothing(self, records: ImageRecords) -> None:
        """A server without backups has none."""
        assert await records.backups("mine", "server", "daily") == []


def _new(**properties: str) -> NewImage:
    return NewImage(
        id=new_uuid(),
        name="of a server",
        owner="mine",
        disk_format="raw",
        container_format="bare",
        min_disk=2,
        min_ram=64,
        properties=properties or {"image_type": "snapshot"},
    )


async def _there(cloud: ServedNeighbours, image_id: str) -> StoredImage | None:
    try:
        return await cloud.images.get(image_id, EVERYBODY)
    except NotFound:
        return None


async def _bytes() -> AsyncIterator[bytes]:
    yield b"12345"
