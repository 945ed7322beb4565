"""Snapshots of volumes that are files, which the volume service asks for while a guest uses one.

A hypervisor would have to make them, and no driver does: each is refused with the name of the capability, in the status
that Nova has for a volume of which no server is known.
"""

from __future__ import annotations

import msgspec

from skep.api.requests import Answer, ApiRequest
from skep.domain.capabilities import Capability
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest


async def create(request: ApiRequest) -> Answer:
    """`POST /os-assisted-volume-snapshots`."""
    raise _unable(request.body["snapshot"]["volume_id"])


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-assisted-volume-snapshots/{snapshot_id}`."""
    told = request.first("delete_info")
    try:
        volume = json_decoder(dict[str, object]).decode(told or "")["volume_id"]
    except (msgspec.DecodeError, KeyError):
        raise BadRequest("query parameter delete_info: expected a JSON object with volume_id") from None
    raise _unable(str(volume))


def _unable(volume: str) -> BadRequest:
    return BadRequest(
        f"Volume {volume[:80]}: no host assists in snapshots of volumes, since no driver has the capability "
        f"`{Capability.ASSISTED_SNAPSHOT}`."
    )
