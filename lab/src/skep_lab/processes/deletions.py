"""Hosts and cells that come while servers are built, get some, and are deleted while more are on their way to them.

    faults.kinds |= deletions(faults)

Each ends with everything as it was. A host or a cell that cannot be deleted is noted among what died.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus

import httpx

from skep.processes.supervisor.child import ChildTask
from skep_lab.processes.child import RoleChild
from skep_lab.processes.faults import Fault, ProcessFaults
from skep_lab.processes.operator import ASK_AGAIN_SECONDS, asked, asked_until_done

STAY_SECONDS = (0.0, 5.0)
"""How long a host that has come is left alone."""
COMING_SECONDS = 30.0
"""How long it is waited until it is up; it is deleted then all the same."""
LEAVING_SECONDS = 180.0
"""How long an operator tries to delete it: other faults may keep what it had from going."""
VISITOR = "visitor"

Attempt = Callable[[], Awaitable[httpx.Response | None]]


def deletions(faults: ProcessFaults) -> dict[str, Fault]:
    """Return the stories, by name."""
    numbers = itertools.count(1)
    return {
        "host deleted": partial(delete_host, faults),
        "cell deleted": lambda: delete_cell(faults, next(numbers)),
    }


async def delete_host(faults: ProcessFaults) -> bool:
    """Add a host to a cell and delete it; the next time it comes back under its name."""
    name = faults.dice.choice(faults.cloud.names)
    host = f"{name}-{VISITOR}"
    like = next(child.order for child in faults.cloud.of("compute") if child.order.cell == name)
    order = ChildTask(f"compute-{host}", "compute", ("--host", host), like.settings, name)
    with faults.taking([order.name]) as free:
        if free is None:
            return False
        await _visit(faults, [order], host, lambda: _delete_service(faults, host))
    return True


async def delete_cell(faults: ProcessFaults, number: int) -> bool:
    """Make a cell with one conductor and one host, and delete both while servers are mapped to it."""
    # A database that was another cell's is refused, and a host that knows another cell's key refuses to serve.
    cloud, name = faults.cloud, f"{VISITOR}{number}"
    with faults.taking([VISITOR]) as free:
        if free is None:
            return False
        database = await asyncio.to_thread(cloud.new_database, name)
        body = {"name": name, "database_url": database}
        if not await asked_until_done(cloud, "POST", "/admin/v1/cells", body):
            faults.died.append("no cell can be made")
            return True
        shown = None
        while shown is None or shown.status_code != HTTPStatus.OK:
            shown = await asked(cloud, "GET", f"/admin/v1/cells/{name}")
        orders = cloud.orders_of(name, shown.json()["cell"]["uuid"], database)
        hosts = [order for order in orders if order.role == "compute"]
        await _visit(faults, orders, hosts[0].name.removeprefix("compute-"), lambda: _delete_cell(faults, name))
    return True


async def _visit(faults: ProcessFaults, orders: Sequence[ChildTask], host: str, delete: Attempt) -> None:
    """Start processes, let their host have servers for a while, and delete it; then they end."""
    children: list[RoleChild] = [faults.cloud.add_child(order) for order in orders]
    with faults.holding([child.order.name for child in children]):
        for child in children:
            child.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMING_SECONDS):
                await _up(faults, host)
        await faults.wait(faults.dice.uniform(*STAY_SECONDS))
        last: httpx.Response | None = None
        try:
            async with asyncio.timeout(LEAVING_SECONDS):
                while last is None or last.status_code != HTTPStatus.NOT_FOUND:
                    await _delete_servers(faults, host)
                    last = await delete()
                    await asyncio.sleep(ASK_AGAIN_SECONDS)
        except TimeoutError:
            faults.died.append(f"{host} cannot be deleted: {last.text[:500] if last is not None else 'no answer'}")
        for child in children:
            await asyncio.to_thread(child.kill)
            faults.cloud.children.pop(child.order.name)


async def _up(faults: ProcessFaults, host: str) -> None:
    while True:
        answer = await asked(faults.cloud, "GET", f"/admin/v1/hosts/{host}")
        if answer is not None and answer.status_code == HTTPStatus.OK and answer.json()["host"]["state"] == "up":
            return
        await asyncio.sleep(ASK_AGAIN_SECONDS)


async def _delete_servers(faults: ProcessFaults, host: str) -> None:
    """Have the users delete what the host has."""
    answer = await asked(faults.cloud, "GET", f"/servers/detail?all_tenants=1&host={host}")
    if answer is None or answer.status_code != HTTPStatus.OK:
        return
    for server in answer.json()["servers"]:
        faults.given_up(server["id"])
        await asked(faults.cloud, "POST", f"/servers/{server['id']}/action", {"forceDelete": None})


async def _delete_failed(faults: ProcessFaults, cell: str) -> None:
    """Have the users delete what stayed in a cell without a host, since its build failed there."""
    answer = await asked(faults.cloud, "GET", "/servers/detail?all_tenants=1&status=ERROR")
    if answer is None or answer.status_code != HTTPStatus.OK:
        return
    for server in answer.json()["servers"]:
        found = await asked(faults.cloud, "GET", f"/admin/v1/servers/{server['id']}/placement")
        if found is None or found.status_code != HTTPStatus.OK or found.json()["placement"]["cell"] != cell:
            continue
        faults.given_up(server["id"])
        await asked(faults.cloud, "POST", f"/servers/{server['id']}/action", {"forceDelete": None})


async def _delete_service(faults: ProcessFaults, host: str) -> httpx.Response | None:
    """Delete the service of a host, and say what is shown of the host then."""
    services = await asked(faults.cloud, "GET", f"/os-services?host={host}&binary=nova-compute")
    if services is None or services.status_code != HTTPStatus.OK:
        return services
    for service in services.json()["services"]:
        await asked(faults.cloud, "DELETE", f"/os-services/{service['id']}")
    return await asked(faults.cloud, "GET", f"/admin/v1/hosts/{host}")


async def _delete_cell(faults: ProcessFaults, name: str) -> httpx.Response | None:
    """Disable the cell and delete it, and say what is shown of it then."""
    path = f"/admin/v1/cells/{name}"
    await asked(faults.cloud, "PATCH", path, {"disabled": True})
    await _delete_failed(faults, name)
    await asked(faults.cloud, "DELETE", f"{path}?hosts=true")
    return await asked(faults.cloud, "GET", path)
