"""The admin API with a real scheduler behind it, which knows two hosts."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from skep.database.api import operator_state
from skep.domain.hosts import HostUsage
from skep.domain.ids import NodeUuid
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import AssertClaims, HostReport, UpdateHostState
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import DEFAULT_FILTERS, SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from tests.support.admin import CELL1, CELL2, Admin


@dataclass
class Served:
    """The admin API with a scheduler that knows its two hosts: h1 (node n1) of cell1, h2 (n2) of cell2."""

    admin: Admin
    backend: MemoryBackend

    async def ask(self, method: str, path: str, body: Any = None, secret: str | None = None) -> httpx.Response:
        """Ask below the prefix, as the admin or with a credential."""
        headers = {"X-Auth-Token": "admin"} if secret is None else {"Authorization": f"Bearer {secret}"}
        return await self.admin.client.request(method, f"/admin/v1{path}", headers=headers, json=body)

    async def good(self, method: str, path: str, body: Any = None, secret: str | None = None) -> Any:
        response = await self.ask(method, path, body, secret)
        assert response.status_code == 200, response.text
        return response.json()

    async def status(self, method: str, path: str, body: Any = None, secret: str | None = None) -> int:
        return (await self.ask(method, path, body, secret)).status_code

    async def secret(self, of: str, **body: Any) -> str:
        """Make a credential of `cells/cell1` or `namespaces/volume`."""
        return str((await self.good("POST", f"/{of}/credentials", body))["credential"]["secret"])

    async def tell(self) -> None:
        """Have rows, cells and hosts tell the scheduler all that they know."""
        services = self.admin.services
        await services.transport.call(SCHEDULER, await services.database.read(operator_state.read))
        for number, cell in ((1, CELL1), (2, CELL2)):
            node = NodeUuid(f"n{number}")
            await services.transport.call(SCHEDULER, Beat(cell=cell, heard=(node,)))
            epoch = await self.backend.epoch()
            await services.transport.call(SCHEDULER, AssertClaims(cell=cell, epoch=epoch, claims=()))
            report = HostReport(node=node, cell=cell, incarnation=1, seq=1, usage=usage(f"h{number}"))
            await services.transport.call(SCHEDULER, UpdateHostState(reports=(report,)))


def usage(host: str, used: Mapping[str, int] | None = None) -> HostUsage:
    """Return a report of a host with eight CPUs."""
    inventory = {"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=4096), "DISK_GB": Inventory(total=100)}
    return HostUsage(host=host, inventory=inventory, used=dict(used or {"VCPU": 0}))


@contextlib.asynccontextmanager
async def served_admin(admin: Admin) -> AsyncIterator[Served]:
    """Put a real scheduler into the place of the admin's fake one for the length of a block."""
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    backend = MemoryBackend()
    settings = SchedulerSettings(filters=(*DEFAULT_FILTERS, "VolumeFilter"))
    scheduler = SchedulerService(admin.services.transport, backend, settings, admin.services.clock)
    await scheduler.start()
    try:
        made = Served(admin, backend)
        await made.tell()
        yield made
    finally:
        await scheduler.stop()
