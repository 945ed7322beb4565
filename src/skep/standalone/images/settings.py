"""What the embedded image store is told."""

from __future__ import annotations

from pathlib import Path

import msgspec


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
    limit_param_default: int = 25
    """Images in one page of a list (Glance's name and default)."""
    api_limit_max: int = 1000
    """Most images in one page (Glance's name and default)."""
