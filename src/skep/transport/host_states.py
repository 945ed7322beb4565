"""All host states, read page by page: each page is one message, and any scheduler may answer it."""

from __future__ import annotations

from msgspec.structs import replace

from skep.domain.hosts import HostState
from skep.messages.to_scheduler import GetHostStates
from skep.transport.base import SCHEDULER, Transport

PAGE_SECONDS = 10.0


async def host_states(
    transport: Transport, query: GetHostStates | None = None, *, timeout: float = PAGE_SECONDS
) -> tuple[HostState, ...]:
    """Return all host states that `query` lets through, by node; `timeout` is for each page, in seconds.

    Raises Unreachable when no scheduler answers.
    """
    asked = query if query is not None else GetHostStates()
    found: list[HostState] = []
    while True:
        reply = await transport.call(SCHEDULER, asked, timeout=timeout)
        found += reply.hosts
        if reply.next_marker is None:
            return tuple(found)
        asked = replace(asked, marker=reply.next_marker)
