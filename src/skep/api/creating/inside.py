"""What a server asks of the inside of its host, refused where flavor, image and aliases contradict each other."""

from __future__ import annotations

from skep.api.extra_specs import check_placed
from skep.api.services import ApiSettings
from skep.domain.flavors import Flavor
from skep.domain.images import Image
from skep.domain.nested.aliases import device_requests
from skep.domain.nested.reading import wanted
from skep.domain.nested.wanted import DeviceRequest


def devices(flavor: Flavor, image: Image, settings: ApiSettings) -> tuple[DeviceRequest, ...]:
    """Return the devices that the flavor's aliases mean.

    Raises BadRequest, naming the extra spec or the image's property, for all that placement could not make sense of.
    """
    check_placed(flavor.extra_specs, volumes="VolumeFilter" in settings.filters)
    found = device_requests(flavor.extra_specs, settings.aliases)
    wanted(flavor, image.properties, found)
    return found
