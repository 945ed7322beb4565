"""Makes what a driver plans for an attempt before its guest, from the server's image where it says so."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

from skep.compute.drivers.base import ImageDriver, NamedResource
from skep.compute.host import Host
from skep.compute.images import wrong_format
from skep.domain.builds import BuildFailure, failure
from skep.domain.instances import Instance


def imageless(host: Host, server: Instance) -> BuildFailure | None:
    """Return why a host cannot make a disk from the image of a server; None: it can."""
    image = server.image
    if host.images is None:
        reason = "The host gets no images: [compute.images] has neither auth_url nor by_ticket there."
    elif image is None:
        reason = "The host was to make a disk from an image, and the server has no image."
    elif not isinstance(host.driver, ImageDriver):
        reason = "The driver of the host makes no disks from images."
    else:
        return wrong_format(image, host.image_formats)
    return failure("ImageUnavailable", reason)


def making(host: Host, server: Instance, attempt: int, resource: NamedResource, image: Path | None) -> Awaitable[None]:
    """Return the call of the driver that makes one resource; `image` is the file of one that is made from it."""
    if not resource.from_image:
        return host.driver.prepare(server, attempt, resource)
    assert image is not None
    assert isinstance(host.driver, ImageDriver)
    return host.driver.prepare_from(server, attempt, resource, image)
