"""The disks of servers: every form in which a create names them, read as one form and checked against each other.

A request says them as `block_device_mapping_v2` or as the older `block_device_mapping`, an image as its properties
`block_device_mapping` and `mappings`, a flavor by its sizes. What only a volume service or an image service knows is
checked where they are asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from skep.domain.decoding import convert, json_decoder
from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.images import YES_WORDS, Image
from skep.domain.invalid_input import invalid_field, invalid_image_property

Source: TypeAlias = Literal["blank", "image", "snapshot", "volume"]
Destination: TypeAlias = Literal["local", "volume"]

V2, V1 = "server.block_device_mapping_v2", "server.block_device_mapping"
OF_IMAGE, MAPPINGS, ROOT_NAME, IS_V2 = "block_device_mapping", "mappings", "root_device_name", "bdm_v2"
"""Properties of an image."""

MOST_DEVICES = 16
"""Disks that a request may name: each of its servers keeps all of them."""
MOST_LOCAL = 3
"""Disks of a server that are its host's, that of the image among them. Negative: any number (Nova's
`max_local_block_devices`)."""

DISK_BUSES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")
DEVICE_TYPES = ("cdrom", "disk", "floppy", "fs", "lun")

GIB = 1024**3
USUAL_ROOT = "/dev/vda"
"""Name of the disk that a server boots from, where its image gives it no other."""
SWAP = "swap"
OTHER_IDS = ("volume_id", "snapshot_id", "image_id")
"""Keys that say again what `uuid` says; in the properties of an image they stand instead of it."""
_EPHEMERAL = re.compile(r"ephemeral\d+")
_PLACE = re.compile(r"at `\$\.([a-z_]+)`")


class BlockDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One disk of a server, in the words of `block_device_mapping_v2`."""

    source_type: Source
    destination_type: Destination = "local"
    boot_index: int | None = None
    uuid: str | None = None
    """Of the image, snapshot or volume."""
    volume_size: int | None = None
    """GiB; of a swap disk MiB, as flavors say it (Nova's `swap_size`)."""
    guest_format: str | None = None
    device_name: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    delete_on_termination: bool = True
    tag: str | None = None
    volume_type: str | None = None

    @property
    def is_swap(self) -> bool:
        """Whether it is a swap disk of the server's host."""
        return self.source_type == "blank" and self.destination_type == "local" and self.guest_format == SWAP

    @property
    def is_ephemeral(self) -> bool:
        """Whether it is an empty disk of the server's host, to be used as the guest likes."""
        return self.source_type == "blank" and self.destination_type == "local" and self.guest_format != SWAP


class AskedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A disk that a server is to have, and where it was asked for."""

    device: BlockDevice
    where: str
    """The field; for a disk that an image or a flavor asks for, that of the request which names the image or flavor."""


class AskedDisks(msgspec.Struct, frozen=True, kw_only=True):
    """What a create says of disks."""

    image: Image | None = None
    """That of `imageRef`."""
    v2: tuple[dict[str, Any], ...] = ()
    v1: tuple[dict[str, Any], ...] = ()
    max_count: int = 1
    """Servers."""
    max_local: int = MOST_LOCAL


class _V2(msgspec.Struct, frozen=True, kw_only=True):
    source_type: Source
    destination_type: Destination | None = None
    uuid: str | None = None
    boot_index: int | None = None
    volume_size: int | None = None
    volume_type: str | None = None
    guest_format: str | None = None
    device_name: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    delete_on_termination: bool | str | None = None
    tag: str | None = None


class _V1(msgspec.Struct, frozen=True, kw_only=True):
    virtual_name: str | None = None
    volume_id: str | None = None
    snapshot_id: str | None = None
    volume_size: int | None = None
    device_name: str | None = None
    delete_on_termination: bool | str | None = None


class _Mapping(msgspec.Struct, frozen=True):
    virtual: str
    device: str | None = None


FormT = TypeVar("FormT", _V2, _V1)


def block_devices(asked: AskedDisks, flavor: Flavor) -> tuple[AskedDevice, ...]:
    """Return the disks that each server of a create is to have: what is asked for, and what the flavor has besides.

    The boot disk is the first one, swap disks are the last; the others are in the order in which they were asked for.
    Raises BadRequest for what no disk can be and for disks that do not go together, naming the field.
    """
    found = _asked_for(asked)
    _check_order(found)
    _check_names(found, asked)
    _check_volumes(found)
    if asked.max_count > 1:
        for one in found:
            if one.device.source_type == "volume":
                expected = "no volume, since one volume cannot be that of several servers"
                raise invalid_field(f"{one.where}.source_type", "volume", expected)
    whole = (*found, *_of_flavor([one.device for one in found], flavor))
    _check_room(whole, flavor)
    local = sum(one.device.destination_type == "local" for one in whole)
    if 0 <= asked.max_local < local:
        expected = f"at most {asked.max_local} disks that are not volumes, those of image and flavor among them"
        raise invalid_field(V1 if asked.v1 else V2, f"{local} local disks", expected)
    ordered = sorted(whole, key=lambda one: (one.device.boot_index != 0, one.device.is_swap))
    return tuple(msgspec.structs.replace(one, device=_sized(one.device, flavor)) for one in ordered)


def boot_device(devices: Sequence[AskedDevice]) -> AskedDevice:
    """Return the disk that a server boots from; each list of `block_devices` has one."""
    return next(one for one in devices if one.device.boot_index == 0)


def check_volume_of_image(asked: AskedDevice, image: Image) -> None:
    """Check a volume that is to be made of an image. Raises BadRequest where the image has no room on it."""
    size = asked.device.volume_size or 0
    least = max(image.min_disk, -(-image.size // GIB))
    if size < least:
        raise invalid_field(f"{asked.where}.volume_size", size, f"at least {least} GiB for image {image.id}")


def _asked_for(asked: AskedDisks) -> list[AskedDevice]:
    """Return what request and image ask for, the root disk first where it is not named."""
    if asked.v1 and asked.v2:
        raise invalid_field(V1, list(asked.v1), "nothing beside block_device_mapping_v2")
    for field, given in ((V2, asked.v2), (V1, asked.v1)):
        if len(given) > MOST_DEVICES:
            raise invalid_field(field, f"{len(given)} devices", f"at most {MOST_DEVICES} devices")
    v2 = [(f"{V2}[{index}]", one) for index, one in enumerate(asked.v2) if not _is_yes(one.get("no_device"))]
    v1 = [(f"{V1}[{index}]", one) for index, one in enumerate(asked.v1) if not _is_yes(one.get("no_device"))]
    of_image = [] if asked.image is None else _of_image(asked.image)
    image_has_root = any(one.device.boot_index == 0 for one in of_image)
    if v2:
        requested = [AskedDevice(device=_from_v2(where, one, asked.image), where=where) for where, one in v2]
        if image_has_root:
            requested = [one for one in requested if not _is_boot_image(one.device)]
    else:
        requested = _legacy(v1, asked.image, has_root=image_has_root)
    if not requested and not of_image:
        raise invalid_field("server.imageRef", None, "the id of an image, or a disk with boot_index 0")
    named = {one.device.device_name for one in requested} - {None}
    return [*requested, *(one for one in of_image if one.device.device_name not in named)]


def _legacy(given: Sequence[tuple[str, dict[str, Any]]], image: Image | None, *, has_root: bool) -> list[AskedDevice]:
    """Return disks in the older form, of which none says whether it is booted."""
    found = [AskedDevice(device=_from_v1(where, one), where=where) for where, one in given]
    if has_root:
        return found
    if image is not None:
        root = BlockDevice(source_type="image", uuid=image.id, boot_index=0)
        return [AskedDevice(device=root, where="server.imageRef"), *found]
    return _booted_by_name(found, USUAL_ROOT)


def _booted_by_name(devices: Sequence[AskedDevice], root: str) -> list[AskedDevice]:
    """Return disks of which the one that is named like the root disk is booted."""
    index = next((i for i, one in enumerate(devices) if one.device.device_name == root), None)
    return [
        msgspec.structs.replace(one, device=msgspec.structs.replace(one.device, boot_index=0)) if i == index else one
        for i, one in enumerate(devices)
    ]


def _from_v2(where: str, given: Mapping[str, Any], image: Image | None) -> BlockDevice:
    one = _read(where, given, _V2)
    _check_words(where, one)
    source, destination = one.source_type, one.destination_type or _usual_destination(one)
    if source == "blank" and one.uuid:
        raise invalid_field(f"{where}.uuid", one.uuid, "none for a blank device")
    if source != "blank" and not one.uuid:
        raise invalid_field(f"{where}.uuid", one.uuid, f"the id of the {source}")
    for key in OTHER_IDS:
        if given.get(key) not in (None, one.uuid):
            raise invalid_field(f"{where}.{key}", given[key], "nothing else than uuid")
    if destination == "local":
        _check_local(where, one, image)
    elif source in ("blank", "image") and not one.volume_size:
        raise invalid_field(f"{where}.volume_size", one.volume_size, f"the size of a volume that is {_made_of(source)}")
    if one.volume_type and (destination == "local" or source == "volume"):
        raise invalid_field(f"{where}.volume_type", one.volume_type, "none, but for a volume that is to be made")
    delete = _is_yes(one.delete_on_termination) if one.delete_on_termination is not None else destination == "local"
    return BlockDevice(
        source_type=source,
        destination_type=destination,
        boot_index=one.boot_index,
        uuid=one.uuid or None,
        volume_size=one.volume_size,
        guest_format=one.guest_format,
        device_name=_device_name(one.device_name),
        device_type=one.device_type,
        disk_bus=one.disk_bus,
        delete_on_termination=delete,
        tag=one.tag,
        volume_type=one.volume_type or None,
    )


def _usual_destination(one: _V2) -> Destination:
    return "volume" if one.source_type in ("snapshot", "volume") else "local"


def _made_of(source: Source) -> str:
    return "blank" if source == "blank" else f"made of an {source}"


def _check_words(where: str, one: _V2) -> None:
    for key, value, known in (("disk_bus", one.disk_bus, DISK_BUSES), ("device_type", one.device_type, DEVICE_TYPES)):
        if value and value not in known:
            raise invalid_field(f"{where}.{key}", value, f"one of {', '.join(known)}")
    if one.volume_size is not None and one.volume_size < 1:
        raise invalid_field(f"{where}.volume_size", one.volume_size, "at least 1 GiB")


def _check_local(where: str, one: _V2, image: Image | None) -> None:
    """Raise BadRequest for what no disk of a host can be: it is blank, or the boot disk that is made of the image."""
    if one.source_type in ("snapshot", "volume"):
        raise invalid_field(f"{where}.destination_type", "local", f"volume for a {one.source_type}")
    if one.source_type == "image":
        if one.boot_index != 0:
            expected = "0, since only the boot disk can be made of an image and no volume"
            raise invalid_field(f"{where}.boot_index", one.boot_index, expected)
        if image is not None and one.uuid != image.id:
            raise invalid_field(f"{where}.uuid", one.uuid, f"{image.id}, as imageRef")


def _from_v1(where: str, given: Mapping[str, Any]) -> BlockDevice:
    one = _read(where, given, _V1)
    if given.get("connection_info"):
        raise invalid_field(f"{where}.connection_info", "...", "none, since a connection is made with the server")
    if one.volume_size is not None and one.volume_size < 1:
        raise invalid_field(f"{where}.volume_size", one.volume_size, "at least 1 GiB")
    name = _device_name(one.device_name)
    if one.virtual_name and (one.virtual_name == SWAP or _EPHEMERAL.fullmatch(one.virtual_name)):
        return _virtual(one.virtual_name, name, one.volume_size)
    found = one.snapshot_id or one.volume_id
    if not found:
        expected = "the id of a volume, unless there is a snapshot_id, or a virtual_name swap or ephemeralN"
        raise invalid_field(f"{where}.volume_id", one.volume_id, expected)
    return BlockDevice(
        source_type="snapshot" if one.snapshot_id else "volume",
        destination_type="volume",
        uuid=found,
        volume_size=one.volume_size,
        device_name=name,
        delete_on_termination=_is_yes(one.delete_on_termination),
    )


def _virtual(name: str, device_name: str | None, size: int | None = None) -> BlockDevice:
    """Return a disk that older forms call by what it is for."""
    guest_format = SWAP if name == SWAP else None
    return BlockDevice(source_type="blank", guest_format=guest_format, device_name=device_name, volume_size=size)


def _of_image(image: Image) -> list[AskedDevice]:
    """Return the disks that an image asks for; those of `mappings` give way to those that have their names."""
    listed = _property(image, OF_IMAGE, list[dict[str, Any]])
    where = f"{OF_IMAGE}[{{}}]"
    devices: list[BlockDevice]
    try:
        if _is_yes(image.properties.get(IS_V2)):
            devices = [_from_v2(where.format(index), _with_uuid(one), None) for index, one in enumerate(listed)]
        else:
            legacy = [AskedDevice(device=_from_v1(where.format(i), one), where="") for i, one in enumerate(listed)]
            devices = [one.device for one in _booted_by_name(legacy, root_name(image))]
    except BadRequest as error:
        raise BadRequest(f"Image {image.id} cannot be used: {error}") from error
    named = {one.device_name for one in devices} - {None}
    for one in _property(image, MAPPINGS, list[_Mapping]):
        name = _device_name(one.device)
        if (one.virtual == SWAP or _EPHEMERAL.fullmatch(one.virtual)) and name not in named:
            devices.append(_virtual(one.virtual, name))
    return [AskedDevice(device=one, where="server.imageRef") for one in devices]


def _with_uuid(given: dict[str, Any]) -> dict[str, Any]:
    """Return what an image says of a disk, as a request says it."""
    return {**given, "uuid": given.get("uuid") or given.get(f"{given.get('source_type')}_id")}


def _property(image: Image, key: str, form: Any) -> Any:
    """Return a property that holds JSON; none: an empty list. Raises BadRequest where it holds something else."""
    text = image.properties.get(key)
    if not text:
        return []
    try:
        return json_decoder(form).decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_image_property(key, text, f"a list of disks in JSON ({error})") from error


def root_name(image: Image | None) -> str:
    """Return the name of the disk that a server of an image boots from."""
    return (image and _device_name(image.properties.get(ROOT_NAME))) or USUAL_ROOT


def _device_name(name: str | None) -> str | None:
    return f"/dev/{name.removeprefix('/dev/')}" if name else None


def _read(where: str, given: Mapping[str, Any], form: type[FormT]) -> FormT:
    """Return what a disk is said to be. Raises BadRequest, naming the key."""
    try:
        return convert(dict(given), form, strict=False)
    except msgspec.ValidationError as error:
        key = found[1] if (found := _PLACE.search(str(error))) else "source_type"
        raise invalid_field(f"{where}.{key}", given.get(key), str(error).partition(" - at")[0]) from error


def _is_yes(value: object) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in YES_WORDS


def _is_boot_image(device: BlockDevice) -> bool:
    return device.source_type == "image" and device.boot_index == 0


def _check_order(devices: Sequence[AskedDevice]) -> None:
    """Raise BadRequest unless the disks that may be booted are numbered 0, 1, 2 and so on, each number once."""
    numbered = [(one.device.boot_index, one.where) for one in devices if one.device.boot_index is not None]
    order = sorted((index, where) for index, where in numbered if index >= 0)
    if not order:
        where = devices[0].where if devices else V2
        raise invalid_field(f"{where}.boot_index", None, "one boot disk: a device with boot_index 0")
    for expected, (index, where) in enumerate(order):
        if index != expected:
            wanted = f"of disks that may be booted each of 0, 1, 2, ..., once; {expected} is due"
            raise invalid_field(f"{where}.boot_index", index, wanted)


def _check_names(devices: Sequence[AskedDevice], asked: AskedDisks) -> None:
    """Raise BadRequest where a volume is named like the disk that is made of the image."""
    if asked.image is None:
        return
    root = root_name(asked.image)
    for one in devices:
        if (
            one.device.destination_type == "volume"
            and one.device.device_name == root
            and one.where != "server.imageRef"
        ):
            raise invalid_field(f"{one.where}.device_name", root, "another name than that of the image's disk")


def _check_volumes(devices: Sequence[AskedDevice]) -> None:
    """Raise BadRequest where a volume is to be several disks of one server."""
    first: dict[str, str] = {}
    for one in devices:
        if one.device.source_type != "volume" or one.device.uuid is None:
            continue
        volume = one.device.uuid.lower()
        if volume in first:
            key = {V1: ".volume_id", V2: ".uuid"}.get(one.where.partition("[")[0], "")
            raise invalid_field(f"{one.where}{key}", one.device.uuid, f"another volume than {first[volume]}")
        first[volume] = one.where


def _of_flavor(devices: Sequence[BlockDevice], flavor: Flavor) -> Iterator[AskedDevice]:
    """Give the disks that a flavor has and nothing asks for."""
    if flavor.ephemeral_gb and not any(one.is_ephemeral for one in devices):
        yield AskedDevice(device=BlockDevice(source_type="blank"), where="server.flavorRef")
    if flavor.swap_mb and not any(one.is_swap for one in devices):
        swap = BlockDevice(source_type="blank", guest_format=SWAP)
        yield AskedDevice(device=swap, where="server.flavorRef")


def _check_room(devices: Sequence[AskedDevice], flavor: Flavor) -> None:
    """Raise BadRequest for disks of the host that the flavor has no room for."""
    swaps = [one for one in devices if one.device.is_swap]
    if len(swaps) > 1:
        raise invalid_field(swaps[1].where, f"{len(swaps)} swap disks", "at most one swap disk")
    for one in swaps:
        size = one.device.volume_size or 0
        if size > flavor.swap_mb:
            expected = f"the flavor's {flavor.swap_mb} MiB at most"
            raise invalid_field(f"{one.where}.volume_size", f"a swap disk of {size} MiB", expected)
    taken = 0
    for one in devices:
        if one.device.is_ephemeral:
            taken += one.device.volume_size or flavor.ephemeral_gb
            if taken > flavor.ephemeral_gb:
                expected = f"the flavor's {flavor.ephemeral_gb} GiB at most"
                raise invalid_field(f"{one.where}.volume_size", f"ephemeral disks of {taken} GiB", expected)


def _sized(device: BlockDevice, flavor: Flavor) -> BlockDevice:
    """Return a disk with its size, where the flavor gives it one."""
    if device.volume_size or not (device.is_swap or device.is_ephemeral):
        return device
    size = flavor.swap_mb if device.is_swap else flavor.ephemeral_gb
    return msgspec.structs.replace(device, volume_size=size)
