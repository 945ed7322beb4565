"""The action `rebuild`: what the API checks of it, the write that begins it, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from skep.api.cells import read_cell, write_cell
from skep.api.creating.addresses import access_address
from skep.api.creating.contents import Secrets, check_limits, injected_files, password_of
from skep.api.creating.disk_config import check_disk_config
from skep.api.creating.disks import ZERO_DISK, check_image
from skep.api.creating.inside import devices
from skep.api.handlers.key_pairs import named_key_pair
from skep.api.handlers.server_images import usable_image
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.handlers.server_views import view_for
from skep.api.requests import Answer, ApiRequest
from skep.api.server_creation import needs_config_drive
from skep.database import Connection
from skep.database.api import build_requests, quotas
from skep.database.cell import agents, builds, instances, rebuilds
from skep.domain.actions import Over, Rebuild
from skep.domain.block_devices import GIB
from skep.domain.capabilities import Capability
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict
from skep.domain.images import Image
from skep.domain.instances import Instance
from skep.domain.invalid_input import invalid_field
from skep.domain.request_specs import RequestSpec
from skep.domain.volumes import staying

REIMAGED_SINCE = 93
"""Since then a rebuild fills the volume that a server boots from anew."""

_TAKEN = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "metadata": "metadata",
    "user_data": "user_data",
    "accessIPv4": "access_ip_v4",
    "accessIPv6": "access_ip_v6",
    "OS-DCF:diskConfig": "disk_config",
}
"""Key of the body -> attribute of the instance."""
_READ: dict[str, Callable[[Any], Any]] = {"accessIPv4": access_address, "accessIPv6": access_address}


class PreparedRebuild:
    """A rebuild that may begin, as far as can be judged before its row is written."""

    def __init__(self, arguments: Rebuild, server: Instance, password: str, secrets: bytes) -> None:
        self.arguments = arguments
        self.server = server
        """As it is to be."""
        self._password = password
        self._secrets = secrets

    def write(self, connection: Connection, context: RequestContext, now: int) -> list[Over] | None:
        """Begin it; return what that ended, None where the row does not allow it.

        Raises Conflict where its host cannot do it.
        """
        row = instances.get(connection, self.server.uuid)
        if row is None or row.attempt != self.server.attempt:
            return None
        needed = [Capability.REBUILD, *([Capability.PRESERVE] if self.arguments.preserve else [])]
        for capability in needed:
            if row.node in agents.without(connection, "MoveStep", capability):
                raise Conflict(
                    f"Cannot 'rebuild' instance {row.uuid}: the requested functionality is not supported. Its host "
                    f"lacks the capability `{capability}`."
                )
        return rebuilds.begin(connection, row, context, now, self.arguments, self._secrets)

    async def answer(self, request: ApiRequest, groups: tuple[str, ...]) -> Answer:
        """Return the server as it is to be, with its password."""
        server = msgspec.structs.replace(
            self.server, task=rebuilds.REBUILD.task, updated_at=request.services.clock.now()
        )
        shown = (await view_for(request)).whole(server, groups)
        shown |= {"adminPass": self._password, "user_data": server.user_data}
        return Answer({"server": shown}, headers={"Location": request.links.own("servers", server.uuid)})


async def prepare(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> PreparedRebuild:
    """Check what a body asks for, and let the server have the image.

    Raises BadRequest for what is not there or does not fit the server, Forbidden beyond the quota.
    """
    services, server = request.services, found.instance
    _refuse_absent(asked)
    fills = server.is_volume_backed and request.version >= REIMAGED_SINCE
    if server.is_volume_backed and not fills:
        _check_same_image(server, asked["imageRef"])
    image = await _image(request, server, asked["imageRef"])
    if fills:
        await _check_volumes(request, server, image)
    check_disk_config(asked, image, "rebuild")
    files = injected_files(asked)
    unit = partial(quotas.limits, project=server.project_id, defaults=await services.quotas_of(server.project_id))
    check_limits(asked.get("metadata") or {}, files, await services.database.read(unit))
    if fills or not server.is_volume_backed:
        await _check_inside(request, found, image)
    if not server.is_volume_backed and (server.image is None or image.id != server.image.id):
        present = server.image.id if server.image is not None else None
        allow = partial(build_requests.allow_image, instance=server.uuid, present=present, wanted=image.id)
        await services.database.write(allow, intake=True)
    taken = {_TAKEN[key]: _READ.get(key, _as_given)(value) for key, value in asked.items() if key in _TAKEN}
    if "key_name" in asked:
        pair = await named_key_pair(request, asked["key_name"], "rebuild")
        taken |= {"key_name": asked["key_name"], "key_pair": msgspec.to_builtins(pair)}
    if not server.is_volume_backed:
        taken["image"] = msgspec.to_builtins(image)
    preserve = bool(asked.get("preserve_ephemeral"))
    arguments = Rebuild(changes=taken, preserve=preserve, reimage=image if fills else None)
    password = password_of(asked)
    secrets = services.seal(msgspec.json.encode(Secrets(admin_password=password, files=files)))
    return PreparedRebuild(arguments, arguments.rebuilt(server), password, secrets)


async def begin(request: ApiRequest, found: LocatedServer, prepared: PreparedRebuild) -> list[Over] | None:
    """Write the action; None where the row does not allow it."""
    assert found.cell is not None
    unit = partial(prepared.write, context=request.context, now=request.services.clock.now())
    return await write_cell(request.services, found.cell, unit)


def _refuse_absent(asked: dict[str, Any]) -> None:
    if asked.get("trusted_image_certificates"):
        said = asked["trusted_image_certificates"]
        expected = "none, since no certificate service is configured"
        raise invalid_field("rebuild.trusted_image_certificates", said, expected)


def _check_same_image(server: Instance, image_id: str) -> None:
    """Raise BadRequest unless the volume that a server boots from stays as it is."""
    if all(one.uuid != image_id for one in server.block_devices if one.boot_index == 0):
        raise BadRequest("Unable to rebuild with a different image for a volume-backed server.")


async def _check_volumes(request: ApiRequest, server: Instance, image: Image) -> None:
    """Raise BadRequest for volumes that are not in use, or too small for the image that is to fill one of them."""
    if not any(one.is_root for one in server.volumes):
        raise Conflict(f"Instance {server.uuid} is not ready")
    for one in staying(server.volumes):
        volume = await request.services.volumes.volume(one.volume_id, request.context, request.token)
        if volume.status != "in-use":
            raise BadRequest(f"Invalid volume: volume {volume.id} has to be in-use, and it is {volume.status}")
        if one.is_root and (image.min_disk > volume.size or image.size > volume.size * GIB):
            expected = f"an image that a volume of {volume.size} GiB has room for"
            raise invalid_field("rebuild.imageRef", image.id, expected)


async def _image(request: ApiRequest, server: Instance, image_id: str) -> Image:
    image = await usable_image(request, image_id)
    if image is None:
        raise BadRequest("Cannot find image for rebuild")
    may_have_no_disk = request.allowed(ZERO_DISK, project_id=server.project_id, user_id=server.user_id)
    check_image(
        image,
        server.flavor,
        may_have_no_disk=may_have_no_disk,
        key="rebuild",
        onto_volume=server.is_volume_backed,
    )
    if needs_config_drive(image) and not server.config_drive:
        raise BadRequest(
            f"Image {image.id} needs a config drive (img_config_drive), which the server does not have: a rebuild does "
            "not give it one."
        )
    return image


async def _check_inside(request: ApiRequest, found: LocatedServer, image: Image) -> None:
    """Raise BadRequest for an image by which the server would need other resources than those that it has."""
    assert found.cell is not None
    devices(found.instance.flavor, image.properties, request.services.settings)
    work = await read_cell(request.services, found.cell, partial(builds.work, uuid=found.instance.uuid))
    if work is None:
        return
    present = work.spec.image if work.instance.is_volume_backed else work.instance.image
    if _needs(work.spec, image) != _needs(work.spec, present):
        raise BadRequest(
            f"Image {image.id} asks for other resources inside the host (NUMA cells, CPUs, devices) than the server "
            "has: a rebuild does not change them."
        )


def _needs(spec: RequestSpec, image: Image | None) -> object:
    other = msgspec.structs.replace(spec, image=image)
    return other.wanted(), other.resources()


def _as_given(value: Any) -> Any:
    return value
