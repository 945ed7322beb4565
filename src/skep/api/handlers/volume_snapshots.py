"""Snapshots of volumes that the volume service asks for.

There is no volume service, so no server has a volume: every one that is named is refused, as Nova refuses those that
it does not know.
"""

from __future__ import annotations

import msgspec

from skep.api.requests import Answer, ApiRequest
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest


async def create(request: ApiRequest) -> Answer:
    """`POST /os-assisted-volume-snapshots`."""
    raise _not_attached(request.body["snapshot"]["volume_id"])


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-assisted-volume-snapshots/{snapshot_id}`."""
    told = request.first("delete_info")
    try:
        volume = json_decoder(dict[str, object]).decode(told or "")["volume_id"]
    except (msgspec.DecodeError, KeyError):
        raise BadRequest("query parameter delete_info: expected a JSON object with volume_id") from None
    raise _not_attached(str(volume))


def _not_attached(volume: str) -> BadRequest:
    return BadRequest(f"No volume Block Device Mapping with id {volume[:80]}.")
