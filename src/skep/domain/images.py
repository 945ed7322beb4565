"""Images, as far as Skep needs to know them: to build from them, and to make them of servers."""

from __future__ import annotations

import msgspec


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
    container_format: str | None = None
    disk_format: str | None = None
    owner: str | None = None
    properties: dict[str, str] = {}


class NewImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is to be made, without its bytes yet."""

    id: str
    """Chosen by whoever makes it, so that it can be removed whatever became of the making."""
    name: str
    owner: str
    """The project that it belongs to; no other sees it."""
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
            "visibility": "private",
            "disk_format": self.disk_format,
            "container_format": self.container_format,
            "min_disk": self.min_disk,
            "min_ram": self.min_ram,
        }
