"""What the operator tells servers: a file for all of them, and services that are asked for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from skep.config.authorities import authorities
from skep.config.metadata import MetadataSettings
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured
from skep.neighbours.vendor_data import VendorDataTargets, VendorTarget

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


def vendor_targets(section: MetadataSettings) -> VendorDataTargets | None:
    """Return the services that are asked; None: there are none. Raises Misconfigured for an unusable CA."""
    if not section.vendordata_dynamic_targets:
        return None
    trusted = authorities(section.vendordata_dynamic_ssl_certfile, "metadata.vendordata_dynamic_ssl_certfile")
    named = [one.partition("@") for one in section.vendordata_dynamic_targets]
    return VendorDataTargets(
        [VendorTarget(name, url) for name, _, url in named],
        httpx.AsyncClient(verify=trusted, trust_env=False),
        timeout=section.vendordata_dynamic_timeout,
        required=section.vendordata_dynamic_failure_fatal,
    )
