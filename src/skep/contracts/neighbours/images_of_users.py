"""What must hold of images that users ask for in their own names: inherit `ImagesOfUsersContract`, give it `images`.

The images are those of Skep's own image service, which answers over HTTP meanwhile (`cloud`).
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from skep.contracts.neighbours.contract import ServedContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, token
from skep.database.api.images import Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Forbidden, NotFound
from skep.domain.ids import RequestId, new_uuid
from skep.domain.images import DescribedImage, ImageSelection
from skep.neighbours.images.base import ImagesOfUsers

Caller: TypeAlias = tuple[RequestContext, str]
"""A user and his token."""
Make: TypeAlias = Callable[..., Awaitable[str]]


class ImagesOfUsersContract(ServedContract, abc.ABC):
    """Tests of the port `skep.neighbours.images.base.ImagesOfUsers`."""

    @pytest.fixture
    @abc.abstractmethod
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImagesOfUsers]:
        """Give what asks for the images of `cloud`."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    @pytest.fixture
    async def demo(self, cloud: ServedNeighbours) -> Caller:
        """Give a member of the project `demo`."""
        return await _caller(cloud, "demo")

    @pytest.fixture
    async def admin(self, cloud: ServedNeighbours) -> Caller:
        """Give an admin, of another project."""
        return await _caller(cloud, "admin")

    @pytest.fixture
    def make(self, cloud: ServedNeighbours, clock: SteppedClock) -> Make:
        """Give what makes an image a second later, by default of the project `demo`, and returns its id."""

        async def made(name: str, *, project: str = "demo", **said: Any) -> str:
            clock.advance(1)
            fields = {"name": name, "disk_format": "raw", "container_format": "bare", **said}
            owner = Viewer(project_id=cloud.first.project_ids[project], is_admin=True)
            return (await cloud.images.create(fields, owner)).id

        return made

    async def test_an_image_is_described(
        self, images: ImagesOfUsers, demo: Caller, make: Make, clock: SteppedClock
    ) -> None:
        """With its times, and the properties that are its own."""
        image_id = await make("one", min_disk=2, min_ram=64, hw_rng_model="virtio", tags=["tag"])
        image = await images.describe(image_id, *demo)
        assert (image.id, image.name, image.status, image.size) == (image_id, "one", "queued", 0)
        assert (image.min_disk, image.min_ram, image.properties) == (2, 64, {"hw_rng_model": "virtio"})
        assert image.created_at == image.updated_at == clock.now()

    @pytest.mark.parametrize("absent", ["0728a01f-33a5-40b8-b366-c070e4047662", "x", "../images", "a\0b", "a b", "?"])
    async def test_what_is_not_there_is_not_found(self, images: ImagesOfUsers, admin: Caller, absent: str) -> None:
        """It cannot be deleted, either; a name that is a path leads nowhere."""
        with pytest.raises(NotFound):
            await images.describe(absent, *admin)
        with pytest.raises(NotFound):
            await images.remove(absent, *admin)

    async def test_a_list_has_what_the_caller_sees(
        self, images: ImagesOfUsers, demo: Caller, admin: Caller, make: Make
    ) -> None:
        """The newest first; other projects' images where they are public."""
        own = await make("own", visibility="private")
        public = await make("public", project="admin", visibility="public")
        hidden = await make("hidden", project="admin", visibility="private")
        assert await _ids(images, demo) == [public, own]
        assert await _ids(images, admin) == [hidden, public, own]
        with pytest.raises(NotFound):
            await images.describe(hidden, *demo)

    async def test_filters(
        self, cloud: ServedNeighbours, images: ImagesOfUsers, demo: Caller, make: Make, clock: SteppedClock
    ) -> None:
        """Each narrows the list; values are compared as they are, whatever stands in them."""
        odd = 'in:"a",b\\'
        first = await make(odd, min_ram=64, instance_uuid="s1")
        second = await make("b", min_disk=3, image_type="snapshot", instance_uuid="s1")
        between = clock.now()
        owner = Viewer(project_id=cloud.first.project_ids["demo"])
        await cloud.images.upload(second, _bytes(), owner)
        third = await make("c")
        for wanted, selection in (
            ([first], {"name": odd}),
            ([], {"name": "in:b"}),
            ([first], {"min_ram": 64}),
            ([second], {"min_disk": 3}),
            ([second], {"statuses": ("active",)}),
            ([third, second, first], {"statuses": ("active", "queued")}),
            ([second, first], {"properties": {"instance_uuid": "s1"}}),
            ([second], {"properties": {"instance_uuid": "s1", "image_type": "snapshot"}}),
            ([third, second], {"changed_since": between}),
        ):
            assert await _ids(images, demo, **selection) == wanted, selection

    async def test_pages(self, images: ImagesOfUsers, demo: Caller, make: Make) -> None:
        """Each begins behind its marker, which must be an image that the caller sees."""
        hidden = await make("hidden", project="admin", visibility="private")
        made = [await make(name) for name in "abc"]
        page = await images.select(ImageSelection(limit=2), *demo)
        assert ([one.id for one in page.images], page.more) == ([made[2], made[1]], True)
        assert await _ids(images, demo, limit=2, marker=made[1]) == [made[0]]
        assert await _ids(images, demo, limit=0) == []
        for marker in (hidden, new_uuid(), "x"):
            with pytest.raises(BadRequest):
                await images.select(ImageSelection(limit=2, marker=marker), *demo)

    async def test_properties_are_changed(self, images: ImagesOfUsers, demo: Caller, make: Make) -> None:
        """Added, replaced and removed in one step; names may have any character that a path has a meaning for."""
        image_id = await make("one", kept="1", changed="1", gone="1")
        before = await images.describe(image_id, *demo)
        wanted = {"kept": "1", "changed": "2", "a/b~c": "3"}
        assert (await images.change(before, wanted, *demo)).properties == wanted
        assert (await images.describe(image_id, *demo)).properties == wanted
        after = await images.describe(image_id, *demo)
        assert (await images.change(after, wanted, *demo)).properties == wanted

    async def test_an_image_is_removed(self, images: ImagesOfUsers, demo: Caller, make: Make) -> None:
        """Once."""
        image_id = await make("one")
        await images.remove(image_id, *demo)
        with pytest.raises(NotFound):
            await images.remove(image_id, *demo)

    async def test_other_projects_images_are_not_the_caller_s_to_change(
        self, images: ImagesOfUsers, demo: Caller, admin: Caller, make: Make
    ) -> None:
        """Though he sees them; and nobody removes one that is protected."""
        public = await make("public", project="admin", visibility="public")
        seen: DescribedImage = await images.describe(public, *demo)
        with pytest.raises(Forbidden):
            await images.change(seen, {"a": "b"}, *demo)
        with pytest.raises(Forbidden):
            await images.remove(public, *demo)
        protected = await make("protected", protected=True)
        with pytest.raises(Forbidden):
            await images.remove(protected, *admin)


async def _caller(cloud: ServedNeighbours, name: str) -> Caller:
    async with cloud.identity_client() as client:
        signed_in = await token(client, name, name)
    known = await cloud.identity.validate(signed_in)
    assert known is not None
    return known.context(RequestId("req-1")), signed_in


async def _ids(images: ImagesOfUsers, caller: Caller, *, limit: int = 100, **wanted: Any) -> list[str]:
    page = await images.select(ImageSelection(limit=limit, **wanted), *caller)
    return [one.id for one in page.images]


async def _bytes() -> AsyncIterator[bytes]:
    yield b"12345"
