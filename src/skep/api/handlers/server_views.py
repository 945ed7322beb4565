"""Which view of servers a caller gets: what it may see is asked once for each request."""

from __future__ import annotations

from skep.api.handlers.server_hosts import host_statuses
from skep.api.requests import ApiRequest
from skep.api.views.servers import ServerView

EXTENDED = "os_compute_api:os-extended-server-attributes"
EXTRA_SPECS = "os_compute_api:servers:show:flavor-extra-specs"


async def view_for(request: ApiRequest, *, hosts: bool = True) -> ServerView:
    """Return the view for the caller; without `hosts` it does not show `host_status`."""
    extended = request.allowed(EXTENDED)
    statuses, only_unknown = await host_statuses(request) if hosts else (None, False)
    return ServerView(
        links=request.links,
        extended=extended,
        hostname=extended or request.version >= 90,
        extra_specs=request.allowed(EXTRA_SPECS),
        admin=request.context.is_admin,
        host_status=statuses,
        only_unknown=only_unknown,
    )
