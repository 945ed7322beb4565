"""What precedes the actions that make an image of a server: the image is made first, without bytes.

The row of the server names it from then on, and its host fills it. `awaited_images` ends what comes of nothing, and the
images of servers that are shelved no more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from skep.api.awaited_images import end
from skep.api.cells import read_cell
from skep.api.creating.contents import check_metadata
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import Answer, ApiRequest
from skep.database.api import awaited_images, quotas
from skep.database.api.awaited_images import AwaitedImage
from skep.database.cell import builds
from skep.domain.actions import MakeImage, ShelveServer
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, NotFound, QuotaExceeded, SkepError, TooLarge, Unavailable
from skep.domain.ids import new_uuid
from skep.domain.images import FIELDS, RESERVED, Image, NewImage, backup_properties
from skep.domain.instances import Instance

UNCHECKED_SINCE = 39
"""Since then the quota of metadata does not count for images."""
IN_BODY_SINCE = 45
"""Since then the answer's body names the image; before, its `Location`."""

NOT_INHERITED = frozenset(
    {
        "backup_type",
        "bittorrent",
        "cache_in_nova",
        "cinder_encryption_key_deletion_policy",
        "cinder_encryption_key_id",
        "img_signature",
        "img_signature_certificate_uuid",
        "img_signature_hash_method",
        "img_signature_key_type",
    }
)
"""Properties of the image that a server was made from which say nothing of its own disk (Nova's)."""

WHOLE_DISKS = frozenset({"raw", "qcow2", "vhd", "vhdx", "vmdk", "vdi", "ploop"})
"""Formats of images that a snapshot has, too; of any other image's server it is `raw`."""


SHELVED = "-shelved"
LONGEST_NAME = 255 - len(SHELVED)


class PreparedImage:
    """An image without bytes, for the action that is to be begun."""

    def __init__(
        self, request: ApiRequest, awaited: AwaitedImage, arguments: MakeImage | None, *, made: bool = True
    ) -> None:
        """`made`: for the action, so that it goes with it."""
        self._request = request
        self._made = made
        self._awaited = awaited
        self._told = awaited.rotation != 0 and not awaited.of_shelved
        self.arguments = arguments
        """Of the action."""
        self.noted_at = awaited.created_at

    @property
    def answer(self) -> Answer:
        """What the client is told."""
        return answer_of(self._request, self._awaited.image_id) if self._told else Answer()

    async def undo(self) -> None:
        """Leave nothing of it: the action was not begun."""
        if not self._made:
            return
        try:
            await end(self._request.services, self._awaited)
        except Unavailable:
            # The loop ends it.
            return


def answer_of(request: ApiRequest, image_id: str) -> Answer:
    """Return what a client is told of the image that is made for it."""
    if request.version >= IN_BODY_SINCE:
        return Answer({"image_id": image_id})
    return Answer(headers={"Location": request.image_url(image_id)})


async def create_image(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> PreparedImage:
    """Make the image of a snapshot. Raises BadRequest, QuotaExceeded, Unavailable."""
    return await _prepare(request, found, asked, {"image_type": "snapshot"})


async def create_backup(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> PreparedImage:
    """Make the image of a backup. Raises as `create_image`."""
    if found.instance.is_volume_backed:
        raise BadRequest("Backup is not supported for volume-backed instances.")
    kind = backup_properties(found.instance.uuid, asked["backup_type"])
    return await _prepare(request, found, asked, kind, asked["backup_type"], asked["rotation"])


async def shelve(request: ApiRequest, found: LocatedServer, _asked: Any) -> PreparedImage:
    """Make the image into which a server is shelved, of its own project. Raises as `create_image`.

    One into which it was shelved before, and which its row names still, is awaited again: this shelve ends it.
    """
    instance = found.instance
    if instance.shelved is not None:
        await await_shelved(request, instance, instance.shelved.image_id)
    named = {"name": f"{instance.name[:LONGEST_NAME]}{SHELVED}"}
    return await _prepare(request, found, named, {"image_type": "snapshot"}, shelves=True)


async def unshelve(request: ApiRequest, found: LocatedServer, _asked: Any) -> PreparedImage:
    """Await the image of a server that is unshelved where it is: when that went well, the image goes.

    Raises Conflict for a server that is in none.
    """
    instance = found.instance
    if instance.shelved is None:
        raise Conflict(f"Cannot 'unshelve' instance {instance.uuid}: no image of it is known")
    awaited = await await_shelved(request, instance, instance.shelved.image_id)
    return PreparedImage(request, awaited, None, made=False)


async def await_shelved(request: ApiRequest, instance: Instance, image_id: str) -> AwaitedImage:
    """Note that this request decides what becomes of the image of a shelved server."""
    unit = partial(
        awaited_images.await_shelved,
        image_id=image_id,
        instance=instance.uuid,
        task_id=request.context.request_id,
        project=instance.project_id,
        now=request.services.clock.now(),
    )
    return await request.services.database.write(unit, intake=True)


async def _prepare(
    request: ApiRequest,
    found: LocatedServer,
    asked: dict[str, Any],
    kind: dict[str, str],
    backup_type: str | None = None,
    rotation: int | None = None,
    *,
    shelves: bool = False,
) -> PreparedImage:
    services, instance, metadata = request.services, found.instance, asked.get("metadata", {})
    owner = instance.project_id if shelves else request.context.project_id
    await check_metadata_of(request, metadata)
    assert found.cell is not None
    work = await read_cell(services, found.cell, partial(builds.work, uuid=instance.uuid))
    facts = {
        **(_of_creator(work.context) if work is not None else {}),
        "owner_id": instance.project_id,
        "image_location": "snapshot",
        "image_state": "available",
        "user_id": request.context.user_id,
        "instance_uuid": instance.uuid,
        **({} if owner == instance.project_id else {"instance_owner": instance.project_id}),
        **kind,
    }
    new = image_of(instance, new_uuid(), asked["name"], owner, {**facts, **metadata})
    awaited = AwaitedImage(
        image_id=new.id,
        instance=instance.uuid,
        task_id=request.context.request_id,
        created_at=services.clock.now(),
        project_id=owner,
        backup_type=backup_type,
        rotation=rotation,
        of_shelved=shelves,
    )
    arguments: MakeImage = MakeImage(image_id=new.id, disk_format=new.disk_format)
    if shelves:
        arguments = ShelveServer(
            image_id=new.id, disk_format=new.disk_format, was=instance.state, project_id=instance.project_id
        )
    prepared = PreparedImage(request, awaited, arguments)
    await services.database.write(partial(awaited_images.add, new=awaited), intake=True)
    try:
        await services.image_records.create(new)
    except TooLarge as error:
        await prepared.undo()
        raise QuotaExceeded(str(error)) from error
    except Unavailable:
        # It may be made yet, however late the request comes through, so the loop ends it after its time.
        raise
    except SkepError:
        await prepared.undo()
        raise
    return prepared


def _of_creator(context: RequestContext) -> dict[str, str]:
    """Return what an image says of who asked for its server."""
    names = {"owner_user_name": context.user_name, "owner_project_name": context.project_name}
    return {"boot_roles": ",".join(context.roles), **{key: name for key, name in names.items() if name}}


async def check_metadata_of(request: ApiRequest, metadata: dict[str, str]) -> None:
    """Check what a user says of an image. Raises BadRequest, QuotaExceeded."""
    services, project = request.services, request.context.project_id
    if request.version < UNCHECKED_SINCE:
        defaults = await services.quotas_of(project)
        limits = await services.database.read(partial(quotas.limits, project=project, defaults=defaults))
        check_metadata(metadata, limits["metadata_items"])
    for key in metadata:
        if key in FIELDS or key.startswith(RESERVED):
            raise BadRequest(
                f"Invalid input for field/attribute metadata. `{key}` is a field of an image, no property of its own."
            )


def image_of(instance: Instance, image_id: str, name: str, owner: str, properties: dict[str, str]) -> NewImage:
    """Return the image of a server: what it boots from says what its disk needs, and its flavor how large it is."""
    base = instance.image
    inherited: dict[str, str] = {}
    disk_format, container_format, min_ram, min_disk = None, None, 0, 0
    if base is not None:
        inherited = {
            key: value
            for key, value in base.properties.items()
            if key not in NOT_INHERITED and key not in FIELDS and not key.startswith(RESERVED)
        }
        inherited.setdefault("base_image_ref", base.id)
        disk_format, container_format = base.disk_format, base.container_format
        min_ram, min_disk = base.min_ram, base.min_disk
    whole = disk_format if disk_format in WHOLE_DISKS else None
    return NewImage(
        id=image_id,
        name=name,
        owner=owner,
        visibility="private" if owner == instance.project_id else "shared",
        disk_format=whole or "raw",
        container_format=(container_format or "bare") if whole else "bare",
        min_disk=max(min_disk, instance.flavor.root_gb),
        min_ram=min_ram,
        properties={**inherited, **properties},
    )


async def usable_image(request: ApiRequest, image_id: str) -> Image | None:
    """Return an image that the caller may use; None where there is none."""
    services, context = request.services, request.context

    async def read() -> Image | None:
        try:
            return await services.images.get(image_id, context)
        except NotFound:
            return None

    return await services.lookups.images.get((image_id, context.project_id, context.roles), read)
