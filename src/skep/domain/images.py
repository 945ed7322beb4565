"""Images, as far as Skep needs to know them: to build from them, and to make them of servers."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

Change: TypeAlias = Literal["add", "remove"]

FIELDS = frozenset(
    "id name status visibility owner protected os_hidden container_format disk_format min_disk min_ram size "
    "virtual_size checksum os_hash_algo os_hash_value tags self file schema locations direct_url stores "
    "created_at updated_at".split()
)
"""What the images API itself says of an image; every other text is a property of its own."""

YES_WORDS = frozenset({"1", "t", "true", "on", "y", "yes"})
"""What a property of an image says for yes, in small letters (oslo.utils, `bool_from_string`)."""
NO_WORDS = frozenset({"0", "f", "false", "off", "n", "no"})
"""What it says for no."""

RESERVED = "os_glance"
"""Properties whose names begin so are the image service's own (Glance, "Common image properties")."""


class Discarded(enum.Enum):
    """What became of an image that was to be deleted unless it has its bytes."""

    GONE = "gone"
    STORED = "stored"
    """It has its bytes."""
    PROTECTED = "protected"
    """It has none, and its user wants it kept."""


class StoreFailure(enum.Enum):
    """Why a host could not store the bytes of an image: the word before the reason.

    Whatever the image service says of such an image, it is not known to have the bytes that were sent.
    """

    UNAVAILABLE = "ImageUnavailable"
    TOO_LARGE = "ImageTooLarge"
    NOT_AUTHORIZED = "ImageNotAuthorized"

    def because(self, reason: object) -> str:
        """Return the failure as the action of the image tells it."""
        return f"{self.value}: {reason}"


MOST_BACKUPS = 1000
"""So many backups of a server are looked at at a time."""


def backup_properties(instance: str, backup_type: str) -> dict[str, str]:
    """Return the properties by which backups of a server are found."""
    return {"image_type": "backup", "instance_uuid": instance, "backup_type": backup_type}


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """One image as the image service describes it."""

    id: str
    name: str = ""
    status: str = "active"
    min_disk: int = 0
    """GiB that a root disk must have at least."""
    min_ram: int = 0
    """MiB that a flavor must have at least."""
    size: int = 0
    """Bytes of the stored image."""
    checksum: str | None = None
    """MD5 of the bytes, in hexadecimal."""
    os_hash_algo: str | None = None
    os_hash_value: str | None = None
    """Hash of the bytes by `os_hash_algo`, in hexadecimal; it is compared before the checksum."""
    container_format: str | None = None
    disk_format: str | None = None
    owner: str | None = None
    properties: dict[str, str] = {}


class NewImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is to be made, without its bytes yet."""

    id: str
    """Chosen before it is made, so that it can be removed whatever became of the making."""
    name: str
    owner: str
    """The project that it belongs to."""
    visibility: Literal["private", "shared"] = "private"
    """`shared`: its owner may add members, that see it, too."""
    disk_format: str
    container_format: str
    min_disk: int = 0
    """GiB"""
    min_ram: int = 0
    """MiB"""
    properties: dict[str, str] = {}

    def fields(self) -> dict[str, object]:
        """Return what the images API is told; its own fields go before properties of the same name."""
        return {
            **self.properties,
            "id": self.id,
            "name": self.name,
            "owner": self.owner,
            "visibility": self.visibility,
            "disk_format": self.disk_format,
            "container_format": self.container_format,
            "min_disk": self.min_disk,
            "min_ram": self.min_ram,
        }


class DescribedImage(Image, frozen=True, kw_only=True):
    """An image as its users see it: with its times, in microseconds since the epoch."""

    created_at: int
    updated_at: int


class ImageSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which images of those that a caller sees: the newest first. What is empty does not narrow."""

    name: str | None = None
    statuses: tuple[str, ...] = ()
    """The image service's own words."""
    min_disk: int | None = None
    """GiB that the image needs, exactly."""
    min_ram: int | None = None
    """MiB that the image needs, exactly."""
    changed_since: int | None = None
    """Microseconds since the epoch."""
    properties: dict[str, str] = {}
    limit: int
    marker: str | None = None
    """The list begins behind the image of this id."""


class ImagesPage(msgspec.Struct, frozen=True):
    """Part of a list of images."""

    images: list[DescribedImage]
    more: bool
    """Whether there may be others behind them."""


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[Change, str, str]]:
    """Yield what makes the second properties of the first: what is done, the name, the value (empty where removed)."""
    for name, value in after.items():
        if before.get(name) != value:
            yield "add", name, value
    for name in before:
        if name not in after:
            yield "remove", name, ""


def pointer(name: str) -> str:
    """Return the JSON pointer of a property (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
