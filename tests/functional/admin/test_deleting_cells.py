"""A cell is deleted by an operator's request, while the super conductor ends what others began to delete."""

from __future__ import annotations

import dataclasses

import httpx
import pytest

from skep.admin.app import AdminApi
from skep.admin.services import AdminServices, CellWork
from skep.database.api import cells
from skep.domain.ids import CellUuid
from skep.reconciler import deletions
from tests.support.admin import CELL1, Admin


class Process:
    """What a process that serves the admin API runs of cells."""

    def __init__(self, services: AdminServices, *, conductor_is_faster: bool) -> None:
        self.stopped: list[CellUuid] = []
        self.sees = set(services.cells)
        self._conductor_is_faster = conductor_is_faster
        self._before = services
        self.services = dataclasses.replace(
            services, stop_cell=self._stop, cell_work=dataclasses.replace(CellWork(), refresh=self._refresh)
        )

    async def _stop(self, cell: CellUuid) -> None:
        self.stopped.append(cell)

    async def _refresh(self) -> None:
        api = self._before.database
        self.sees = {cell.uuid for cell in await api.read(cells.every)}
        if self._conductor_is_faster and CELL1 in await api.read(cells.deleting):
            # It looks between the mark and what follows it.
            await deletions.end_cell(api, self._before.cells[CELL1], CELL1, within=1.0)


@pytest.fixture(params=[False, True], ids=["alone", "behind the super conductor"])
async def process(request: pytest.FixtureRequest, admin: Admin) -> Process:
    await admin.good("PATCH", "/cells/cell1", json={"disabled": True})
    return Process(admin.services, conductor_is_faster=request.param)


async def test_a_deleted_cell_is_gone_from_the_process_that_was_asked(process: Process) -> None:
    asgi = httpx.ASGITransport(AdminApi(process.services), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=asgi, base_url="http://cloud") as client:
        answer = await client.delete("/admin/v1/cells/cell1?hosts=true", headers={"X-Auth-Token": "admin"})
    assert answer.json() == {"cell": {"name": "cell1", "uuid": CELL1, "deleted": True, "hosts": ["h1"]}}
    assert process.stopped == [CELL1]
    assert CELL1 not in process.sees
