"""Images, as far as a build needs to know them."""

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
