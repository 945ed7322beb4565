"""What precedes actions with secret arguments: what is sealed for their hosts, and what their users are answered."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.api.creating.contents import Secrets, password_of
from skep.api.requests import Answer, ApiRequest
from skep.domain.actions import RescueGuest, SealedRescue
from skep.domain.errors import BadRequest, NotFound
from skep.domain.images import Image
from skep.domain.instances import Instance

VOLUME_BACKED_SINCE = 87
"""Since then servers that boot from a volume are rescued."""

OF_VOLUMES = "block_device_mapping"
"""The property of images that are snapshots of volumes: they have no bytes of their own."""


class SealedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What an action is told."""

    secrets: bytes
    arguments: msgspec.Struct | None = None
    answer: Answer = Answer()


async def change_password(request: ApiRequest, _server: Instance, asked: Any) -> SealedArguments:
    """Seal the new password."""
    return SealedArguments(secrets=_sealed(request, Secrets(admin_password=asked["adminPass"])))


async def rescue(request: ApiRequest, server: Instance, asked: Any) -> SealedArguments:
    """Find the image of a rescue and seal what its host gets. Raises BadRequest for an image that is not to be had."""
    asked = asked or {}
    if server.is_volume_backed and request.version < VOLUME_BACKED_SINCE:
        raise BadRequest("Cannot rescue a volume-backed instance")
    image = await _image(request, server, asked.get("rescue_image_ref"))
    password = password_of(asked)
    sealed = SealedRescue(admin_password=password, instance=server.uuid, image=image.id if image is not None else None)
    return SealedArguments(
        secrets=_sealed(request, sealed),
        arguments=RescueGuest(rescue_image=image),
        answer=Answer({"adminPass": password}),
    )


def _sealed(request: ApiRequest, secrets: msgspec.Struct) -> bytes:
    return request.services.seal(msgspec.json.encode(secrets))


async def _image(request: ApiRequest, server: Instance, named: str | None) -> Image | None:
    """Return the image that is named; else that from which the server's own was made, if it is there; else that."""
    own = server.image
    if named is not None:
        try:
            image = await request.services.images.get(named, request.context)
        except NotFound:
            raise _unsupported(named) from None
        if image.status != "active" or OF_VOLUMES in image.properties:
            raise _unsupported(named)
        return image
    if own is None:
        raise BadRequest(f"Instance {server.uuid} cannot be rescued: it has no image, and none is named")
    base = own.properties.get("base_image_ref")
    if base:
        try:
            image = await request.services.images.get(base, request.context)
        except NotFound:
            return own
        if image.status == "active":
            return image
    return own


def _unsupported(image: str) -> BadRequest:
    return BadRequest(f"Requested rescue image '{image}' is not supported")
