"""Questions to schedulers about free capacity; the other messages are in `to_scheduler.py`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from skep.domain.capacity import Capacity
from skep.domain.ids import CellUuid
from skep.domain.request_specs import RequestSpec
from skep.messages.base import Call


class GetCapacityReply(msgspec.Struct, frozen=True, kw_only=True):
    """The free capacity as the answering scheduler sees it."""

    capacity: Capacity
    epoch: str


class GetCapacity(Call[GetCapacityReply], frozen=True, kw_only=True):
    """Count how many more servers fit that ask for this. Nothing is claimed.

    Raises BadRequest for a flavor that takes nothing, or a number of hosts that cannot be.
    """

    wire_name: ClassVar[str] = "GetCapacity"
    reply_type: ClassVar[Any] = GetCapacityReply
    spec: RequestSpec
    cell: CellUuid | None = None
    """Only hosts of this cell."""
    keep_free_hosts: int = 0
    """The number of emptiest hosts to leave out."""
