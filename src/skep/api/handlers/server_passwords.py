"""The password that a guest has told of itself (Nova's API reference, "Servers password")."""

from __future__ import annotations

from functools import partial

from skep.api.cells import read_cell, write_cell
from skep.api.handlers.server_lookup import find
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import guest_passwords


async def show(request: ApiRequest) -> Answer:
    """`GET /servers/{id}/os-server-password`: as the guest encrypted it; empty until the guest has told one."""
    found = await find(request)
    password = ""
    if found.cell is not None:
        unit = partial(guest_passwords.get, uuid=found.instance.uuid)
        password = await read_cell(request.services, found.cell, unit)
    return Answer({"password": password})


async def clear(request: ApiRequest) -> Answer:
    """`DELETE /servers/{id}/os-server-password`: the guest keeps the password, and may tell another."""
    found = await find(request)
    if found.cell is not None:
        unit = partial(guest_passwords.clear, uuid=found.instance.uuid, now=request.services.clock.now())
        await write_cell(request.services, found.cell, unit)
    return Answer()
