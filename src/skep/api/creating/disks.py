"""The disks of a server as a create says them, and whether an image and a flavor go together."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.block_devices import GIB, AskedDevice, AskedDisks, block_devices
from skep.domain.errors import Forbidden
from skep.domain.flavors import Flavor
from skep.domain.images import Image
from skep.domain.invalid_input import invalid_field, invalid_image_property

ZERO_DISK = "os_compute_api:servers:create:zero_disk_flavor"
"""The rule for who may have a server whose flavor has no root disk, from an image of any size."""

SIGNATURE = "img_signature"
"""Property of an image that wants to be verified before a server is made of it."""

ENCRYPTED = "cinder_encryption_key_id"
"""Property of an image that was made of an encrypted volume, whose bytes no guest could read."""

UNLIMITED = -1
"""Local disks that a server may have, beside the number of devices of a request."""

NO_IMAGE = "the id of an image, or a disk with boot_index 0"

CONFIG_DRIVE = "img_config_drive"
"""Property of an image that wants a config drive for its servers."""


class Disks(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of disks."""

    image_ref: str
    """The image that servers boot from; empty: its disks say what they boot from."""
    v2: tuple[dict[str, Any], ...] = ()
    v1: tuple[dict[str, Any], ...] = ()
    max_count: int = 1
    """Servers."""

    @property
    def image_id(self) -> str | None:
        """The image that is to be looked up; None: servers boot from no image."""
        if self.image_ref:
            return self.image_ref
        boots = (one.get("uuid") for one in self.v2 if one.get("source_type") == "image" and _is_first(one))
        return next(boots, None)

    def all(self, image: Image | None, flavor: Flavor) -> tuple[AskedDevice, ...]:
        """Return the disks of each server: those that are asked for, then those that the flavor has besides.

        Raises BadRequest for disks that make no sense and for what the flavor has no room for.
        """
        asked = AskedDisks(
            image=image if self.image_ref else None,
            v2=self.v2,
            v1=self.v1,
            max_count=self.max_count,
            max_local=UNLIMITED,
        )
        found = block_devices(asked, flavor)
        for one in found:
            if one.device.tag is not None and one.device.destination_type == "local":
                expected = "none but for volumes, since no hypervisor of this cloud tags its own disks"
                raise invalid_field(f"{one.where}.tag", one.device.tag, expected)
        return found


def disks(server: dict[str, Any], max_count: int) -> Disks:
    """Read what a request says of disks, which is checked once image and flavor are known.

    Raises BadRequest where nothing says what servers are made of.
    """
    found = Disks(
        image_ref=server.get("imageRef") or "",
        v2=tuple(server.get("block_device_mapping_v2") or ()),
        v1=tuple(server.get("block_device_mapping") or ()),
        max_count=max_count,
    )
    if not found.image_ref and not found.v1 and not found.v2:
        raise invalid_field("server.imageRef", found.image_ref, NO_IMAGE)
    return found


def _is_first(device: dict[str, Any]) -> bool:
    return str(device.get("boot_index")) == "0" and not device.get("no_device")


def check_image(
    image: Image, flavor: Flavor, *, may_have_no_disk: bool, key: str = "server", onto_volume: bool = False
) -> None:
    """Check that a server of `flavor` can be made from `image`.

    A flavor with a root disk of 0 has one of the image's size, which only some callers may have. `key` is that of the
    request's body. `onto_volume`: the image goes onto a volume, which has a size of its own, and may be encrypted.

    Raises BadRequest, or Forbidden for such a flavor.
    """
    if image.status != "active":
        raise invalid_field(f"{key}.imageRef", image.id, f"an active image, this one is {image.status}")
    if image.properties.get(ENCRYPTED) and not onto_volume:
        raise invalid_field(f"{key}.imageRef", image.id, f"an image of no encrypted volume, this one has {ENCRYPTED}")
    check_config_drive(image)
    if SIGNATURE in image.properties:
        expected = f"an image without {SIGNATURE}, since signatures of images are not verified here"
        raise invalid_field(f"{key}.imageRef", image.id, expected)
    if onto_volume:
        check_memory(image, flavor, f"{key}.flavorRef")
        return
    check_size(image, flavor, f"{key}.flavorRef")
    if flavor.root_gb == 0 and not may_have_no_disk:
        raise Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")


def check_config_drive(image: Image) -> None:
    """Raise BadRequest for an image that says of config drives what nothing means."""
    drive = image.properties.get(CONFIG_DRIVE, "optional")
    if drive not in ("optional", "mandatory"):
        raise invalid_image_property(CONFIG_DRIVE, drive, "optional or mandatory")


def check_boot_volume(boot: AskedDevice, image: Image, flavor: Flavor) -> None:
    """Check a volume to boot from that is there, by what it keeps of its image. Raises BadRequest."""
    check_config_drive(image)
    check_memory(image, flavor, "server.flavorRef")
    size = boot.device.volume_size or 0
    if image.min_disk > size:
        expected = f"at least {image.min_disk} GiB, by the image that the volume was made of"
        raise invalid_field(f"{boot.where}.volume_size", size, expected)


def check_size(image: Image, flavor: Flavor, field: str) -> None:
    """Check that `flavor`, which a field names, is large enough for `image`. Raises BadRequest."""
    check_memory(image, flavor, field)
    if flavor.root_gb == 0:
        return
    root = flavor.root_gb * GIB
    if image.size > root:
        expected = f"a flavor with a disk of {image.size} bytes for this image, not {root}"
        raise invalid_field(field, flavor.flavorid, expected)
    if image.min_disk > flavor.root_gb:
        expected = f"a flavor with a disk of {image.min_disk} GiB for this image, not {flavor.root_gb}"
        raise invalid_field(field, flavor.flavorid, expected)


def check_memory(image: Image, flavor: Flavor, field: str) -> None:
    """Check that `flavor`, which a field names, has the memory that `image` needs. Raises BadRequest."""
    if flavor.memory_mb < image.min_ram:
        expected = f"a flavor with {image.min_ram} MiB of memory for this image, not {flavor.memory_mb}"
        raise invalid_field(field, flavor.flavorid, expected)
