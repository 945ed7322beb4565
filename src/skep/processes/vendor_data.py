"""The operator's file with what every server is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.config.metadata import MetadataSettings
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured

MAX_BYTES = 64 * 1024


def vendor_data(section: MetadataSettings) -> dict[str, Any]:
    """Return the object that the file holds; an empty one where none is configured.

    Raises Misconfigured for a file that cannot be read, is too long, or holds something else.
    """
    if not section.vendordata_jsonfile_path:
        return {}
    path = Path(section.vendordata_jsonfile_path)
    wrong = f"metadata.vendordata_jsonfile_path: expected a JSON object of at most {MAX_BYTES} bytes, got {path}: "
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Misconfigured(wrong + str(error.strerror)) from error
    if len(content) > MAX_BYTES:
        raise Misconfigured(wrong + "it is longer")
    try:
        found: dict[str, Any] = json_decoder(dict[str, Any]).decode(content)
    except ValueError as error:
        raise Misconfigured(wrong + str(error)) from error
    return found
