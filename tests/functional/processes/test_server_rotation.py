"""`skep keys rotate servers` while a cloud of processes is used, and while it is stopped: no request fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, signed_in
from skep.processes.supervisor.cloud import SupervisedCloud
from skep.processes.supervisor.nats_probe import accepts
from skep.processes.supervisor.passwords import NATS_USERS
from skep.processes.supervisor.plan import ProcessNumbers
from skep.processes.supervisor.server_rotation import ServerRotation
from tests.support.supervised_cloud import supervised_cloud

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres")]

SETTINGS = """
[compute.fake]
spawn_delay = 0.1
destroy_delay = 0
"""
TOGETHER = 6
"""Servers that are there at once."""
PAUSE = 0.5
"""Seconds between two requests of each kind: the machine has to do something else, too."""


async def skep(folder: Path, *arguments: str, status: int | None = 0) -> str:
    """Run a command that is told of nothing but the directory; return what it says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP_", "OS_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", *arguments),
        env=kept | {"SKEP_STATE__DIRECTORY": str(folder / "state")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert status is None or process.returncode == status, said.decode()
    return said.decode()


class Users:
    """Requests that go on all the while; each has to be answered as if nothing happened."""

    def __init__(self, session: ComputeSession, image: str) -> None:
        self.session = session
        self.answers: list[tuple[str, int]] = []
        self._image = image
        self._ended = asyncio.Event()
        self._made: list[str] = []

    async def __aenter__(self) -> Users:
        works = (self._list, self._create, self._hypervisors)
        self._tasks = [asyncio.create_task(self._repeat(work)) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def more(self, count: int = 10) -> None:
        """Wait until so many more requests were answered."""
        wanted = len(self.answers) + count

        async def probe() -> bool:
            return len(self.answers) >= wanted

        await eventually(probe, "requests go on")

    async def _repeat(self, work: Callable[[], Awaitable[httpx.Response]]) -> None:
        while not self._ended.is_set():
            answer = await work()
            self.answers.append((f"{answer.request.method} {answer.request.url.path}", answer.status_code))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), PAUSE)

    async def _list(self) -> httpx.Response:
        return await self.session.ask("GET", "/servers/detail")

    async def _hypervisors(self) -> httpx.Response:
        return await self.session.ask("GET", "/os-hypervisors/detail")

    async def _create(self) -> httpx.Response:
        """Create a server, or delete the oldest: the hosts have room for some only."""
        if len(self._made) >= TOGETHER:
            return await self.session.ask("DELETE", f"/servers/{self._made.pop(0)}")
        server = {"name": "one", "flavorRef": "1", "imageRef": self._image}
        answer = await self.session.ask("POST", "/servers", {"server": server})
        if answer.status_code == 202:
            self._made.append(answer.json()["server"]["id"])
        return answer


async def test_no_request_fails_while_own_servers_get_other_passwords(open_folder: Path) -> None:
    async with supervised_cloud(open_folder, ProcessNumbers(scheduler=1), SETTINGS) as cloud:
        async with signed_in(cloud) as session:
            await _ready(session)
            before = _passwords(open_folder)
            async with Users(session, await _image(cloud, session)) as users:
                await users.more()
                said = await skep(open_folder, "keys", "rotate", "servers")
                assert "the processes follow them by themselves" in said
                assert "`skep keys rotate servers` (drop)" in await skep(
                    open_folder, "doctor", "--format", "json", status=None
                )
                await users.more()
                rotation = ServerRotation(cloud.directory)
                assert rotation.users == ("skep_2", "skep")

                async def may_go_on(rotation: ServerRotation = rotation) -> bool:
                    return rotation.refusal() is None

                await eventually(may_go_on, "the next step may be taken")
                assert "NATS refuses its old user" in await skep(open_folder, "keys", "rotate", "servers")
                await users.more(20)
            wrong = [one for one in users.answers if one[1] not in (200, 202, 204)]
            assert not wrong, wrong
            await _refused(cloud, before)
            await _all_active(session)
        after = _passwords(open_folder)
    assert json.loads(await skep(open_folder, "keys", "rotate", "servers", "--json"))["steps"] == ["use", "drop"]
    async with (
        supervised_cloud(open_folder, ProcessNumbers(scheduler=1), SETTINGS) as again,
        signed_in(again) as session,
    ):
        await _ready(session)
        await _refused(again, after)
        await _all_active(session)


def _passwords(folder: Path) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads((folder / "state" / "servers" / "passwords.json").read_bytes())
    return found


async def _refused(cloud: SupervisedCloud, passwords: Mapping[str, str]) -> None:
    """See that no password of before is taken by any server."""
    assert cloud.servers is not None
    ports = {name: int((cloud.directory.servers / f"{name}.port").read_text()) for name in ("nats", "postgres")}
    for name, password in passwords.items():
        if name in NATS_USERS:
            assert not await accepts(ports["nats"], NATS_USERS[name], password), name
        elif name != "nats_used":
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(
                    host="127.0.0.1", port=ports["postgres"], user=name, password=password, dbname="postgres"
                )


async def _ready(session: ComputeSession) -> None:
    address = str(session.client.base_url).replace("/v2.1/", "/readyz")

    async def probe() -> bool:
        answer = await session.client.get(address)
        return answer.status_code == 200 and not answer.json()["warnings"]

    await eventually(probe, f"{address} is ready")


async def _image(cloud: SupervisedCloud, session: ComputeSession) -> str:
    found = await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})
    return str(found.json()["images"][0]["id"])


async def _all_active(session: ComputeSession) -> None:
    async def probe() -> list[dict[str, Any]]:
        servers: list[dict[str, Any]] = (await session.ask("GET", "/servers/detail")).json()["servers"]
        return servers if not any(one["status"] == "BUILD" for one in servers) else []

    servers = await eventually(probe, "all servers are settled")
    assert {one["status"] for one in servers} == {"ACTIVE"}, [one.get("fault") for one in servers]
