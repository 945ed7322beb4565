"""What a server asks of the inside of its host, refused where flavor, image and aliases contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

from skep.api.extra_specs import A_TRAIT, check_placed, is_trait
from skep.api.services import ApiSettings
from skep.domain.flavors import Flavor
from skep.domain.guest_keys import disagreement
from skep.domain.invalid_input import invalid_image_property
from skep.domain.nested.aliases import device_requests
from skep.domain.nested.reading import wanted
from skep.domain.nested.wanted import DeviceRequest
from skep.domain.versions import are_conditions

_TRAIT = "trait:"
_VERSIONS = ("img_hv_requested_version", "hypervisor_version_requires")


def devices(flavor: Flavor, properties: dict[str, str], settings: ApiSettings) -> tuple[DeviceRequest, ...]:
    """Return the devices that the flavor's aliases mean; `properties` are those of the image.

    Raises BadRequest, naming the extra spec or the image's property, for all that placement could not make sense of.
    """
    check_placed(flavor.extra_specs, volumes="VolumeFilter" in settings.filters)
    _check_properties(properties)
    differs = disagreement(flavor.extra_specs, properties)
    if differs is not None:
        key, ours = differs
        raise invalid_image_property(key, properties[key], f"what the flavor says of it, {ours}")
    found = device_requests(flavor.extra_specs, settings.aliases)
    wanted(flavor, properties, found)
    return found


def _check_properties(properties: Mapping[str, str]) -> None:
    """Check what filters read of the image; what is asked of NUMA cells and CPUs is read elsewhere."""
    for key, value in properties.items():
        if key.startswith(_TRAIT):
            if not is_trait(key.removeprefix(_TRAIT)):
                raise invalid_image_property(key, value, f"after {_TRAIT} {A_TRAIT}")
            if value not in ("required", "forbidden"):
                raise invalid_image_property(key, value, "required or forbidden")
        elif key in _VERSIONS and value and not are_conditions(value):
            raise invalid_image_property(key, value, "conditions on a version, as >=2.6, <3.0")
