"""The states of hosts as far as servers show them: `host_status`, and whether a hypervisor is there."""

from __future__ import annotations

import structlog

from skep.api.requests import ApiRequest
from skep.api.services import ApiServices
from skep.domain.errors import Unavailable
from skep.domain.hosts import HostState
from skep.transport import host_states as pages

log = structlog.get_logger("skep.api.servers")

ANSWER_SECONDS = 0.8
"""A list of servers waits no longer for its hosts' states."""

HOST_STATUS = "os_compute_api:servers:show:host_status"
UNKNOWN_ONLY = "os_compute_api:servers:show:host_status:unknown-only"


async def host_states(services: ApiServices) -> tuple[HostState, ...]:
    """Return the states of all hosts, at most a moment old.

    Raises Unavailable when no scheduler answers in time.
    """

    async def read() -> tuple[HostState, ...]:
        return await pages.host_states(services.transport, timeout=ANSWER_SECONDS)

    return await services.lookups.hosts.get("all", read) or ()


async def host_statuses(request: ApiRequest) -> tuple[dict[str, str] | None, bool]:
    """Return host -> status as the caller may see it (None: not at all), and whether only UNKNOWN may be seen."""
    everything = request.allowed(HOST_STATUS)
    if request.version < 16 or not (everything or request.allowed(UNKNOWN_ONLY)):
        return None, False
    try:
        states = await host_states(request.services)
    except Unavailable as error:
        log.warning("host states unknown", error=str(error))
        states = ()
    return {state.usage.host: status_of(state) for state in states}, not everything


def status_of(state: HostState) -> str:
    """Return what `host_status` says of the servers on a host."""
    if state.disabled:
        return "MAINTENANCE"
    if state.up:
        return "UP"
    return "DOWN" if state.forced_down else "UNKNOWN"
