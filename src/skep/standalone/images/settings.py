"""What the embedded image store is told."""

from __future__ import annotations

from pathlib import Path

import msgspec

UNLIMITED = -1
"""As a quota: none."""


class ImagesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the embedded image store."""

    directory: Path
    """Where the bytes are; made with mode 0700 where it is missing. It belongs to one process."""
    identity_url: str
    """Address of the identity service, named in 401 answers."""
    image_size_cap: int = 1_099_511_627_776
    """Most bytes of one image (Glance's name and default)."""
    image_property_quota: int = 128
    """Most properties of one image (Glance's name and default)."""
    image_tag_quota: int = 128
    """Most tags of one image (Glance's name and default)."""
    image_member_quota: int = 128
    """Most members of one image (Glance's name and default)."""
    property_bytes: int = 65_536
    """Most bytes of names and values of one image's properties together."""
    images_per_project: int = UNLIMITED
    """Most images of one project."""
    bytes_per_project: int = UNLIMITED
    """Most bytes that the images of one project have together."""
    free_bytes: int = 0
    """What uploads leave free on the disk."""
    page_bytes: int = 4_194_304
    """How much of images' descriptions one page of a list holds; a single image is shown however large it is."""
    limit_param_default: int = 25
    """Images in one page of a list (Glance's name and default)."""
    api_limit_max: int = 1000
    """Most images in one page (Glance's name and default)."""
