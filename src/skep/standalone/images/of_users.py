"""What users ask of the embedded store through the compute API: as they may by the store's own API."""

from __future__ import annotations

from skep.database.api.images import ImageQuery, StoredImage
from skep.domain.context import RequestContext
from skep.domain.images import DescribedImage, ImageSelection, ImagesPage, changes, pointer
from skep.standalone.images.callers import check_member, check_reader
from skep.standalone.images.embedded import viewer_of
from skep.standalone.images.fields import PatchOperation
from skep.standalone.images.service import StandaloneImages


class EmbeddedOfUsers:
    """An `ImagesOfUsers` over the embedded store, which knows the caller already: it needs no token."""

    def __init__(self, images: StandaloneImages) -> None:
        self._images = images

    async def select(self, selection: ImageSelection, context: RequestContext, token: str) -> ImagesPage:  # noqa: ARG002 - the port says so
        """Return the images that the caller sees, the newest first."""
        check_reader(context.roles)
        if not selection.limit:
            return ImagesPage([], more=False)
        one_of: dict[str, tuple[str, ...] | tuple[int, ...]] = {}
        if selection.name is not None:
            one_of["name"] = (selection.name,)
        if selection.statuses:
            one_of["status"] = selection.statuses
        for name, value in (("min_disk", selection.min_disk), ("min_ram", selection.min_ram)):
            if value is not None:
                one_of[name] = (value,)
        since = selection.changed_since
        query = ImageQuery(
            one_of=one_of,
            properties=selection.properties,
            times=() if since is None else (("updated_at", "gte", since),),
            sort=(("created_at", True),),
            limit=selection.limit,
            most_bytes=self._images.settings.page_bytes,
        )
        page = await self._images.select(query, selection.marker, viewer_of(context))
        more = page.ended_early or len(page.images) == selection.limit
        return ImagesPage([_described(stored) for stored in page.images], more=more)

    async def describe(self, image_id: str, context: RequestContext, token: str) -> DescribedImage:  # noqa: ARG002 - likewise
        """Return an image."""
        check_reader(context.roles)
        return _described(await self._images.get(image_id.lower(), viewer_of(context)))

    async def change(
        self,
        image: DescribedImage,
        properties: dict[str, str],
        context: RequestContext,
        token: str,  # noqa: ARG002 - likewise
    ) -> DescribedImage:
        """Give an image these properties instead of those it was described with."""
        check_member(context.roles, context.project_id)
        steps = [
            PatchOperation(op="add", path=pointer(name), value=value)
            if op == "add"
            else PatchOperation(op="remove", path=pointer(name))
            for op, name, value in changes(image.properties, properties)
        ]
        return _described(await self._images.patch(image.id, steps, viewer_of(context)))

    async def remove(self, image_id: str, context: RequestContext, token: str) -> None:  # noqa: ARG002 - likewise
        """Delete an image."""
        check_member(context.roles, context.project_id)
        await self._images.delete(image_id.lower(), viewer_of(context))


def _described(stored: StoredImage) -> DescribedImage:
    return DescribedImage(
        id=stored.id,
        name=stored.name or "",
        status=stored.status,
        min_disk=stored.min_disk,
        min_ram=stored.min_ram,
        size=stored.size or 0,
        owner=stored.owner,
        properties=stored.properties,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )
