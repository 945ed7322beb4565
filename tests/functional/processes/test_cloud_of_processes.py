"""`skep up --processes`: two APIs serve side by side, a cell comes and goes, each kind of process is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, signed_in
from skep.domain.clock import SECOND
from skep.processes.api import ApiProcess
from skep.processes.process import Process
from skep.processes.supervisor.cloud import SupervisedCloud
from skep.processes.supervisor.plan import ProcessNumbers
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep_lab.crash.role import WrongClock
from tests.support.supervised_cloud import new_open_folder, supervised_cloud

pytestmark = [
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.asyncio(loop_scope="module"),
]

SETTINGS = """
[conductor]
lease_seconds = 2.0
resend_seconds = 0.3
[compute.fake]
spawn_delay = 0.2
destroy_delay = 0
"""
HOUR = 3600
TOGETHER = 4
"""Servers that are being built while a process is killed."""
MANY_KILLED = 150
"""Seconds until what was under way is settled, where every process and both servers were killed in between."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cloud() -> AsyncIterator[SupervisedCloud]:
    """One cloud for all tests: each leaves it as it was, but for the last, which kills."""
    with new_open_folder() as folder:
        async with supervised_cloud(folder, ProcessNumbers(api=2), SETTINGS, hosts=2) as made:
            yield made


async def _ready(session: ComputeSession) -> None:
    """Wait until an API process is ready: it reaches everything, and the cell has a host."""
    address = str(session.client.base_url).replace("/v2.1/", "/readyz")

    async def probe() -> bool:
        try:
            answer = await session.client.get(address)
            return answer.status_code == 200 and not answer.json()["warnings"]
        except httpx.TransportError:
            return False

    await eventually(probe, f"{address} is ready")


async def _image(cloud: SupervisedCloud, session: ComputeSession) -> str:
    """Return the image that stays: others are made of servers here, and go."""
    headers = {"X-Auth-Token": session.token}
    found = await session.client.get(f"{cloud.images_url}/v2/images?name=tiny", headers=headers)
    return str(found.json()["images"][0]["id"])


async def _image_is_made_of(cloud: SupervisedCloud, session: ComputeSession, server: str) -> None:
    """The host is in a process of its own, and stores the image by a ticket."""
    answer = await session.ask("POST", f"/servers/{server}/action", {"createImage": {"name": "of it"}}, version="2.45")
    assert answer.status_code == 202, answer.text
    address = f"{cloud.images_url}/v2/images/{answer.json()['image_id']}"

    async def stored() -> bool:
        return bool(
            (await session.client.get(address, headers={"X-Auth-Token": session.token})).json()["status"] == "active"
        )

    await eventually(stored, "the image has its bytes")


async def _is_shelved_and_comes_back(session: ComputeSession, server: str) -> None:
    """Both ways its content goes by tickets."""

    async def comes_to(status: str) -> None:
        async def is_so() -> bool:
            shown = (await session.ask("GET", f"/servers/{server}")).json()["server"]
            return (shown["status"], shown["OS-EXT-STS:task_state"]) == (status, None)

        await eventually(is_so, f"the server is {status}")

    await comes_to("ACTIVE")
    for key, status in (("shelve", "SHELVED_OFFLOADED"), ("unshelve", "ACTIVE")):
        answer = await session.ask("POST", f"/servers/{server}/action", {key: None})
        assert answer.status_code == 202, answer.text
        await comes_to(status)


async def _create(session: ComputeSession, image: str, name: str) -> None:
    server = {"name": name, "flavorRef": "1", "imageRef": image, "min_count": TOGETHER, "max_count": TOGETHER}
    await _served(session, "POST", "/servers", {"server": server}, status=202)


async def _served(session: ComputeSession, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
    """Ask until it is done; a 503 says that nothing was, and when to ask again."""

    async def probe() -> httpx.Response | None:
        answer = await session.ask(method, path, body)
        if answer.status_code == 503:
            assert answer.headers["Retry-After"]
            return None
        assert answer.status_code == status, answer.text
        return answer

    served = await eventually(probe, f"{method} {path} is served")
    assert served is not None
    return served.json()


async def _settled(cloud: SupervisedCloud, session: ComputeSession, count: int) -> list[dict[str, Any]]:
    async def probe() -> list[dict[str, Any]]:
        servers = (await _served(session, "GET", "/servers/detail"))["servers"]
        done = len(servers) == count and not any(one["status"] == "BUILD" for one in servers)
        return servers if done else []

    try:
        return await eventually(probe, f"{count} servers are settled", seconds=MANY_KILLED)
    except AssertionError as error:
        found = (await _served(session, "GET", "/servers/detail"))["servers"]
        told = [(one["name"], one["status"], one["OS-EXT-SRV-ATTR:host"]) for one in found]
        said = "\n".join(
            child.tail(20) for name, child in cloud.children.items() if "conductor" in name or "sched" in name
        )
        raise AssertionError(f"{len(found)} servers: {told}\n{said}") from error


def _kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def _agrees(session: ComputeSession) -> bool:
    audit = (await _served(session, "GET", _admin(session, "audit")))["audit"]
    return not audit["differences"] and not audit["unread"]


async def _services(session: ComputeSession) -> list[tuple[str, str]]:
    services = (await _served(session, "GET", "/os-services"))["services"]
    found = sorted((one["binary"], one["state"]) for one in services)
    assert found.count(("nova-scheduler", "up")) == 2
    assert found.count(("nova-conductor", "up")) == 2
    return found


async def test_the_clock_of_each_api_process_is_judged_whichever_answers(cloud: SupervisedCloud) -> None:
    clock, metrics = WrongClock(-HOUR * SECOND), Metrics()
    behind = Process(cloud._running, clock, metrics, Steps(metrics), Notifier(clock))
    wrong = ApiProcess(behind)
    await wrong.start()
    try:
        async with signed_in(cloud) as admin:
            await eventually(lambda: _told_of(admin, 3), "three API processes are known")
            first, second, third = await _clocks_of_apis(admin)
            assert abs(first) < 60
            assert abs(second) < 60
            assert abs(third + HOUR) < 60
            services = (await _served(admin, "GET", "/os-services"))["services"]
            assert [one["binary"] for one in services].count("nova-conductor") == 2
    finally:
        await wrong.stop()
    async with signed_in(cloud) as admin:
        assert len(await _clocks_of_apis(admin)) == 2


async def _clocks_of_apis(session: ComputeSession) -> list[float]:
    """Return by how many seconds each API process is ahead, the wrongest last."""
    clocks = (await _served(session, "GET", _admin(session, "clocks")))["clocks"]
    found = [one["seconds_ahead"] for one in clocks if (one["process"], one["database"]) == ("api", "api")]
    return sorted(found, key=abs)


async def _told_of(session: ComputeSession, count: int) -> bool:
    return len(await _clocks_of_apis(session)) == count


async def test_a_cell_comes_and_goes_while_everything_runs(cloud: SupervisedCloud) -> None:
    async with signed_in(cloud) as admin:
        await _ready(admin)
        assert cloud.servers is not None
        await cloud.servers.make_database("other")
        new = {"name": "cell2", "database_url": cloud.servers.database_url("other")}
        answer = await admin.ask("POST", _admin(admin, "cells"), new)
        assert answer.status_code < 300, answer.text
        await eventually(lambda: _hosts_up(admin, "cell2"), "the new cell has hosts")
        await _served(admin, "PATCH", _admin(admin, "cells/cell1"), {"disabled": True})
        await _create(admin, await _image(cloud, admin), "there")
        found = await _settled(cloud, admin, TOGETHER)
        assert {one["status"] for one in found} == {"ACTIVE"}, [one.get("fault") for one in found]
        assert {one["OS-EXT-SRV-ATTR:host"].partition("-")[0] for one in found} == {"cell2"}
        await _image_is_made_of(cloud, admin, found[0]["id"])
        await _is_shelved_and_comes_back(admin, found[0]["id"])
        for one in found:
            await admin.ask("DELETE", f"/servers/{one['id']}")
        await eventually(lambda: _deleted(admin, "cell2"), "the cell is deleted")

        async def stopped() -> bool:
            return not any(child.order.cell == "cell2" for child in cloud.children.values())

        await eventually(stopped, "its processes have stopped")
        await _served(admin, "PATCH", _admin(admin, "cells/cell1"), {"disabled": False})


async def _hosts_up(session: ComputeSession, cell: str) -> bool:
    shown = (await session.ask("GET", _admin(session, f"cells/{cell}"))).json()
    return bool(shown["cell"]["hosts_up"] == 2)


async def _deleted(session: ComputeSession, cell: str) -> bool:
    await session.ask("PATCH", _admin(session, f"cells/{cell}"), {"disabled": True})
    return (await session.ask("DELETE", _admin(session, f"cells/{cell}?hosts=true"))).status_code == 200


def _admin(session: ComputeSession, path: str) -> str:
    return str(session.client.base_url).replace("/v2.1/", f"/admin/v1/{path}")


async def test_each_kind_of_process_is_killed_while_servers_are_built(cloud: SupervisedCloud) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(signed_in(cloud))
        second = await stack.enter_async_context(signed_in(cloud, at=cloud.api_urls[1]))
        await _ready(first)
        await _ready(second)
        image = await _image(cloud, first)
        victims = ["super-conductor-1", "scheduler-1", "cell-conductor-cell1-1", "compute-cell1-host1", "api-1"]
        for victim in victims:
            await _create(second, image, victim)
            _kill(cloud.children[victim].pid)
        assert cloud.servers is not None
        for server, pid in cloud.servers.pids.items():
            await _ready(second)
            await _create(second, image, server)
            _kill(pid)
        await _ready(second)
        found = await _settled(cloud, second, TOGETHER * (len(victims) + 2))
        assert {one["status"] for one in found} == {"ACTIVE"}, [one.get("fault") for one in found]
        await _ready(first)
        again = [child for child in cloud.children.values() if child.starts > 2]
        assert not again, "\n".join(child.tail(30) for child in again)
        await eventually(lambda: _agrees(second), "the audit finds nothing")
        assert await _services(first) == await _services(second)
