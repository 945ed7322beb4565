"""Identifiers. One type per noun, so that they cannot be swapped; all are plain strings at run time."""

from __future__ import annotations

import uuid
from typing import NewType

InstanceUuid = NewType("InstanceUuid", str)
NodeUuid = NewType("NodeUuid", str)
"""A node is keyed by its UUID; name, address and cell are attributes."""
CellUuid = NewType("CellUuid", str)
GroupUuid = NewType("GroupUuid", str)
ProjectId = NewType("ProjectId", str)
UserId = NewType("UserId", str)
RequestId = NewType("RequestId", str)
"""The `req-...` id of one API request; also the reservation of the servers that it made."""
Incarnation = NewType("Incarnation", str)
"""One run of a process."""

CELL0 = CellUuid("00000000-0000-0000-0000-000000000000")
"""The cell of instances that never got a host."""


def new_uuid() -> str:
    """Return a random UUID in its canonical form."""
    return str(uuid.uuid4())


def new_request_id() -> RequestId:
    """Return a fresh request id in the form that OpenStack services use."""
    return RequestId(f"req-{uuid.uuid4()}")


def is_uuid(text: str) -> bool:
    """Tell whether `text` is a UUID in a form that Nova accepts (with or without dashes, any case)."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return False
    return str(parsed).replace("-", "") == text.lower().strip("{}").replace("urn:uuid:", "").replace("-", "")


def reservation_id(request_id: str) -> str:
    """Return the reservation id that the API shows for the servers of one request (Nova's form `r-........`)."""
    return f"r-{request_id.removeprefix('req-')[:8]}"
