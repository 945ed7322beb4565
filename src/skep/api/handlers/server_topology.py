"""The NUMA cells of a server, and for admins where they are on its host."""

from __future__ import annotations

from functools import partial
from typing import Any

from skep.api.cells import read_cell
from skep.api.handlers.server_lookup import find
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import assignments
from skep.domain.instances import Instance
from skep.domain.nested.numa_reading import guest_cpus
from skep.domain.providers import Allocation, CellShare

HOST_PART = "compute:server:topology:host:index"


async def show(request: ApiRequest) -> Answer:
    """Answer the cells that a server was built with; none for one that asked for none."""
    found = await find(request)
    server = found.instance
    allocation = None
    if found.cell is not None and server.host is not None:
        allocation = await read_cell(request.services, found.cell, partial(assignments.allocation_of, uuid=server.uuid))
    with_host = request.allowed(HOST_PART, project_id=server.project_id, user_id=server.user_id)
    return Answer(topology(server, allocation, with_host=with_host))


def topology(server: Instance, allocation: Allocation | None, *, with_host: bool) -> dict[str, Any]:
    """Return a server's topology as the API shows it."""
    properties = server.image.properties if server.image is not None else {}
    cpus = guest_cpus(server.flavor, properties)
    shares = allocation.cells if allocation is not None else ()
    if cpus is None or len(cpus) != len(shares):
        return {"nodes": [], "pagesize_kb": None}
    sizes = {size for share in shares for size in share.pages}
    nodes = []
    for (numbers, dedicated), share in zip(cpus, shares, strict=True):
        node: dict[str, Any] = {"vcpu_set": numbers, "siblings": [], "memory_mb": _memory(share)}
        if with_host:
            pinned = dict(zip((one for one in numbers if one in dedicated), share.cpus, strict=False))
            node |= {"host_node": share.cell, "cpu_pinning": {str(one): cpu for one, cpu in pinned.items()}}
        nodes.append(node)
    return {"nodes": nodes, "pagesize_kb": min(sizes) if sizes else None}


def _memory(share: CellShare) -> int:
    return share.memory_mb + sum(size * count for size, count in share.pages.items()) // 1024
