"""`OS-DCF:diskConfig`: whether the guest's disk is one partition that is made as large as the flavor's disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from skep.domain.images import YES_WORDS, Image
from skep.domain.invalid_input import invalid_field

PROPERTY = "auto_disk_config"
"""The image's word: true or false for its servers unless they say otherwise, `disabled` where it must not be."""

_KEY = "OS-DCF:diskConfig"


def is_yes(text: str) -> bool:
    """Tell whether the property of an image means AUTO."""
    return text.strip().lower() in YES_WORDS


def check_disk_config(asked: Mapping[str, Any], image: Image | None, key: str) -> None:
    """Raise BadRequest for AUTO where the image forbids it; `key` is that of the request's body."""
    said = image.properties.get(PROPERTY, "") if image is not None else ""
    if asked.get(_KEY) == "AUTO" and said.strip().lower() == "disabled":
        raise invalid_field(f"{key}.{_KEY}", "AUTO", f"MANUAL, since the image has {PROPERTY} disabled")


def disk_config_of(asked: Mapping[str, Any], image: Image | None) -> Literal["AUTO", "MANUAL"]:
    """Return what is asked for, or what the image says where nothing is."""
    given: Literal["AUTO", "MANUAL"] | None = asked.get(_KEY)
    said = image.properties.get(PROPERTY, "") if image is not None else ""
    return given or ("AUTO" if is_yes(said) else "MANUAL")
