"""The disks of a server: the image it boots from and what block_device_mapping_v2 says, against the flavor."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from skep.domain.block_devices import DEVICE_TYPES, DISK_BUSES, GIB, MIB_PER_GIB, MOST_DEVICES, BlockDevice
from skep.domain.errors import Forbidden
from skep.domain.flavors import Flavor
from skep.domain.images import Image
from skep.domain.invalid_input import invalid_field, invalid_image_property
from skep.neighbours.volumes.absent import NO_VOLUMES

ZERO_DISK = "os_compute_api:servers:create:zero_disk_flavor"
"""The rule for who may have a server whose flavor has no root disk, from an image of any size."""

SIGNATURE = "img_signature"
"""Property of an image that wants to be verified before a server is made of it."""

ENCRYPTED = "cinder_encryption_key_id"
"""Property of an image that was made of an encrypted volume, whose bytes no guest could read."""

CONFIG_DRIVE = "img_config_drive"
"""Property of an image that wants a config drive for its servers."""

_DEVICES = "server.block_device_mapping_v2"
_ONE_BOOT = "one boot disk: a device with source_type image, boot_index 0 and the uuid of imageRef"


class Disks(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of disks."""

    boot: BlockDevice
    """The disk that is made of the image."""
    devices: tuple[BlockDevice, ...] = ()
    """The others."""

    @property
    def image_id(self) -> str:
        """The image's id."""
        assert self.boot.uuid is not None
        return self.boot.uuid

    def all(self, flavor: Flavor) -> tuple[BlockDevice, ...]:
        """Return the boot disk and the others; what the flavor has and the request does not divide is one disk.

        Raises BadRequest for what the flavor has no room for.
        """
        swaps = [one for one in self.devices if one.guest_format == "swap"]
        ephemerals = [one for one in self.devices if one.guest_format != "swap"]
        if len(swaps) > 1:
            raise invalid_field(_DEVICES, f"{len(swaps)} swap disks", "at most one swap disk")
        whole_gib = flavor.swap_mb // MIB_PER_GIB
        swap = sum(one.volume_size or 0 for one in swaps)
        if swap * MIB_PER_GIB > flavor.swap_mb:
            raise invalid_field(_DEVICES, f"a swap disk of {swap} GiB", f"the flavor's {flavor.swap_mb} MiB at most")
        ephemeral = sum(one.volume_size or flavor.ephemeral_gb for one in ephemerals)
        if ephemeral > flavor.ephemeral_gb:
            expected = f"the flavor's {flavor.ephemeral_gb} GiB at most"
            raise invalid_field(_DEVICES, f"ephemeral disks of {ephemeral} GiB", expected)
        if not ephemerals and flavor.ephemeral_gb:
            ephemerals = [BlockDevice(source_type="blank")]
        if not swaps and flavor.swap_mb:
            swaps = [BlockDevice(source_type="blank", guest_format="swap")]
        sized = [_sized(one, flavor.ephemeral_gb) for one in ephemerals] + [_sized(one, whole_gib) for one in swaps]
        return (self.boot, *sized)


def _sized(device: BlockDevice, whole: int) -> BlockDevice:
    return device if device.volume_size else msgspec.structs.replace(device, volume_size=whole)


def disks(server: dict[str, Any]) -> Disks:
    """Read `imageRef` and `block_device_mapping_v2`.

    Raises BadRequest for what needs a volume service, for no or several boot disks, for devices that make no sense.
    """
    given = server.get("block_device_mapping_v2") or ()
    if len(given) > MOST_DEVICES:
        raise invalid_field(_DEVICES, f"{len(given)} devices", f"at most {MOST_DEVICES} devices")
    boots: list[BlockDevice] = []
    others: list[BlockDevice] = []
    for index, device in enumerate(given):
        if device.get("no_device"):
            continue
        where = f"server.block_device_mapping_v2[{index}]"
        _check_words(device, where)
        if device.get("source_type") == "image":
            boots.append(_boot_image(device, where))
        else:
            others.append(_blank(device, where))
    image_ref: str = server.get("imageRef") or ""
    if not image_ref and not boots:
        raise invalid_field("server.imageRef", image_ref, "the id of an image, since nothing boots from volumes here")
    if given and [one.uuid for one in boots] != [image_ref or boots[0].uuid]:
        said = f"boot disks of {', '.join(str(one.uuid) for one in boots)}" if boots else "no boot disk"
        raise invalid_field(_DEVICES, said, _ONE_BOOT)
    boot = boots[0] if boots else BlockDevice(source_type="image", uuid=image_ref, boot_index=0)
    order = sorted(one.boot_index for one in others if one.boot_index is not None and one.boot_index >= 0)
    if order != list(range(1, len(order) + 1)):
        said = f"boot_index {', '.join(str(index) for index in order)} beside the boot disk's 0"
        raise invalid_field(_DEVICES, said, "of disks that may be booted each of 1, 2, ..., once")
    return Disks(boot=boot, devices=tuple(others))


def _check_words(device: dict[str, Any], where: str) -> None:
    """Raise BadRequest for words that no hypervisor knows, or only a volume service."""
    for key in ("source_type", "destination_type"):
        if device.get(key) in ("volume", "snapshot"):
            raise invalid_field(f"{where}.{key}", device[key], NO_VOLUMES)
    for key in ("volume_id", "snapshot_id", "volume_type"):
        if device.get(key):
            raise invalid_field(f"{where}.{key}", device[key], NO_VOLUMES)
    for key, known in (("disk_bus", DISK_BUSES), ("device_type", DEVICE_TYPES)):
        if device.get(key) and device[key] not in known:
            raise invalid_field(f"{where}.{key}", device[key], f"one of {', '.join(known)}")
    if device.get("tag") is not None:
        raise invalid_field(f"{where}.tag", device["tag"], "none, since no hypervisor of this cloud tags devices")
    if device.get("source_type") is None:
        raise invalid_field(f"{where}.source_type", None, "image or blank")


def _boot_image(device: dict[str, Any], where: str) -> BlockDevice:
    index = _boot_index(device, where)
    if index != 0:
        raise invalid_field(f"{where}.boot_index", index, "0, since only the boot disk can be made of an image")
    uuid: str | None = device.get("uuid")
    if not uuid:
        raise invalid_field(f"{where}.uuid", uuid, "the id of an image")
    return _device(device, index, uuid)


def _blank(device: dict[str, Any], where: str) -> BlockDevice:
    if device.get("uuid"):
        raise invalid_field(f"{where}.uuid", device["uuid"], "none for a blank device")
    return _device(device, _boot_index(device, where))


def _device(device: dict[str, Any], boot_index: int | None, uuid: str | None = None) -> BlockDevice:
    size = device.get("volume_size")
    return BlockDevice(
        source_type=cast(Literal["blank", "image"], device["source_type"]),
        boot_index=boot_index,
        uuid=uuid,
        volume_size=int(size) if size else None,
        guest_format=device.get("guest_format"),
        device_name=device.get("device_name"),
        device_type=device.get("device_type"),
        disk_bus=device.get("disk_bus"),
        delete_on_termination=device.get("delete_on_termination", True),
    )


def _boot_index(device: dict[str, Any], where: str) -> int | None:
    value = device.get("boot_index")
    try:
        return None if value is None else int(value)
    except ValueError:
        raise invalid_field(f"{where}.boot_index", value, "a whole number") from None


def check_image(image: Image, flavor: Flavor, *, may_have_no_disk: bool, key: str = "server") -> None:
    """Check that a server of `flavor` can be made from `image`.

    A flavor with a root disk of 0 has one of the image's size, which only some callers may have. `key` is that of the
    request's body.

    Raises BadRequest, or Forbidden for such a flavor.
    """
    if image.status != "active":
        raise invalid_field(f"{key}.imageRef", image.id, f"an active image, this one is {image.status}")
    if image.properties.get(ENCRYPTED):
        raise invalid_field(f"{key}.imageRef", image.id, f"an image of no encrypted volume, this one has {ENCRYPTED}")
    drive = image.properties.get(CONFIG_DRIVE, "optional")
    if drive not in ("optional", "mandatory"):
        raise invalid_image_property(CONFIG_DRIVE, drive, "optional or mandatory")
    if SIGNATURE in image.properties:
        expected = f"an image without {SIGNATURE}, since signatures of images are not verified here"
        raise invalid_field(f"{key}.imageRef", image.id, expected)
    check_size(image, flavor, f"{key}.flavorRef")
    if flavor.root_gb == 0 and not may_have_no_disk:
        raise Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")


def check_size(image: Image, flavor: Flavor, field: str) -> None:
    """Check that `flavor`, which a field names, is large enough for `image`. Raises BadRequest."""
    if flavor.memory_mb < image.min_ram:
        expected = f"a flavor with {image.min_ram} MiB of memory for this image, not {flavor.memory_mb}"
        raise invalid_field(field, flavor.flavorid, expected)
    if flavor.root_gb == 0:
        return
    root = flavor.root_gb * GIB
    if image.size > root:
        expected = f"a flavor with a disk of {image.size} bytes for this image, not {root}"
        raise invalid_field(field, flavor.flavorid, expected)
    if image.min_disk > flavor.root_gb:
        expected = f"a flavor with a disk of {image.min_disk} GiB for this image, not {flavor.root_gb}"
        raise invalid_field(field, flavor.flavorid, expected)
