"""Lives of servers against a plain model: any actions in any order, with failures of drivers and restarts beside them.

After each action the server is what the model says: status, host, power state, the content of its disk, one guest, its
charge, its images, its place in a group whose members are apart, no claim. In the end nothing of it is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, event, given, note, settings
from hypothesis import strategies as st

from skep.compute.drivers.fake import DISKS, FailureRule, FakeDriver
from skep.compute.drivers.fake_disks import FakeDisks
from skep.config.sections import Config, RetentionSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database.cell import fences, instances
from skep.domain.clock import Clock
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from skep.messages.to_scheduler import ListClaims
from skep.processes.all_in_one import AllInOneCloud
from skep.transport.base import SCHEDULER
from tests.support.one_life import ACTS, TINY_MB, Act, Life, Lost, Wish, after, may
from tests.support.samples import everywhere, examples

HOSTS = 3
BESIDE = st.sampled_from(["nothing"] * 4 + ["fails", "fails again", "agents", "cloud"])
"""What happens beside an action: its operation of the driver fails once, or another one that is tried again; the agents
or the whole cloud begin anew."""
STORIES = st.lists(st.tuples(st.integers(0, 1000), BESIDE, st.integers(0, 7)), min_size=8, max_size=14)
"""Of each action: which of those that may begin, what happens beside it, and 0 where it is drawn from all of them."""


DRAWN = [act for act in ACTS.values() if everywhere() or act.lost not in ("silent", "fenced")]
"""Until a host counts as silent some seconds pass: such are drawn where every case is run."""


class World:
    """One server in a small cloud, and its user."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open = AsyncExitStack()
        self.cloud: AllInOneCloud
        self.user: ComputeSession
        self.admin: ComputeSession
        self.uuid = InstanceUuid("")
        self.image = ""
        self.other_host = ""
        """Of the other member of its group."""
        self.seen: dict[str, Any] = {}
        """What was last compared."""

    async def start(self) -> None:
        """Start the cloud over what is there, with all of its hosts: the group needs more than the first."""
        self.cloud = await self._open.enter_async_context(serving_cloud(self._config, cells=1, hosts=HOSTS))
        self.user = await self._open.enter_async_context(signed_in(self.cloud, "demo", "demo"))
        self.admin = await self._open.enter_async_context(signed_in(self.cloud))

    async def stop(self) -> None:
        await self._open.aclose()

    async def restart_agents(self) -> None:
        plane = self.cloud.plane
        [cell] = (one for one in plane.cells.values() if not one.is_cell0)
        for host in list(plane.agents):
            await plane.agents.pop(host).stop()
            plane.drivers.pop(host).close()
            await plane.start_agent(cell, host)

    async def begins(self) -> None:
        """Make the server, and another one that is never where it is."""
        images = (await self.user.client.get(f"{self.cloud.images_url}/v2/images", headers=self._token())).json()
        self.image = images["images"][0]["id"]
        group = {"server_group": {"name": "apart", "policies": ["anti-affinity"]}}
        made = (await self.user.ask("POST", "/os-server-groups", group)).json()["server_group"]["id"]
        hosts = []
        for name in ("other", "one"):
            server = {"name": name, "flavorRef": "1", "imageRef": self.image, "networks": "none"}
            wanted = {"server": server, "os:scheduler_hints": {"group": made}}
            answer = await self.user.ask("POST", "/servers", wanted, version="2.37")
            assert answer.status_code == 202, answer.text
            self.uuid = InstanceUuid(answer.json()["server"]["id"])
            assert (await self.rests())["status"] == "ACTIVE"
            hosts.append((await self.row()).host)
        self.other_host = str(hosts[0])

    async def ask(self, act: Act) -> int:
        session = self.admin if act.by_admin else self.user
        if act.body is None:
            answer = await session.ask("DELETE", f"/servers/{self.uuid}")
        else:
            body = {"rebuild": {"imageRef": self.image}} if act.name == "rebuild" else act.body
            answer = await session.ask("POST", f"/servers/{self.uuid}/action", body, version=act.version)
        return answer.status_code

    async def loses(self, host: str, how: Lost) -> None:
        """Have a host taken for lost, and wait until an evacuation may leave it."""
        if how == "forced down":
            await self._force_down(host, down=True)
            return
        plane = self.cloud.plane
        await plane.agents.pop(host).stop()
        plane.drivers.pop(host).close()
        row = await self.row()
        assert row.node is not None
        if how == "fenced":
            # It is heard for a while, and a host that is heard has its fence withdrawn.
            await self._is(host, "down")
            mark = partial(fences.mark, node=row.node, now=Clock().now(), due_at=Clock().now())
            assert await plane.databases.cells["cell1"].write(mark)

            async def is_given_up() -> bool:
                return (await self.row()).state is State.ERROR

            await eventually(is_given_up, "the fence is in effect")

    async def _is(self, host: str, state: str) -> None:
        async def probe() -> bool:
            answer = await self.admin.ask("GET", f"/os-services?binary=nova-compute&host={host}")
            return bool(answer.json()["services"][0]["state"] == state)

        await eventually(probe, f"the host is {state}")

    async def returns(self, host: str, how: Lost) -> None:
        """Have a lost host come back."""
        if how == "forced down":
            await self._force_down(host, down=False)
        else:
            [cell] = (one for one in self.cloud.plane.cells.values() if not one.is_cell0)
            await self.cloud.plane.start_agent(cell, host)
        await self._is(host, "up")

    async def _force_down(self, host: str, *, down: bool) -> None:
        wanted = {"binary": "nova-compute", "host": host, "forced_down": down}
        answer = await self.admin.ask("PUT", "/os-services/force-down", wanted, version="2.11")
        assert answer.status_code == 200, answer.text

    async def wishes(self, wish: Wish) -> None:
        """Wait until the guest is copied, and have that end."""
        path = f"/servers/{self.uuid}/migrations"

        async def probe() -> int | None:
            found = (await self.admin.ask("GET", path, version="2.23")).json()["migrations"]
            return found[0]["id"] if found and found[0]["status"] == "running" else None

        copied = await eventually(probe, "the guest is copied")
        if wish == "abort":
            answer = await self.admin.ask("DELETE", f"{path}/{copied}", version="2.24")
        else:
            answer = await self.admin.ask("POST", f"{path}/{copied}/action", {"force_complete": None}, version="2.22")
        assert answer.status_code == 202, answer.text

    async def rests(self) -> dict[str, Any]:
        """Wait until nothing is done to the server and return it as administrators see it."""

        async def probe() -> dict[str, Any] | None:
            answer = await self.admin.ask("GET", f"/servers/{self.uuid}")
            server: dict[str, Any] = answer.json().get("server", {})
            under_way = server.get("OS-EXT-STS:task_state", "?") is not None or server["status"] in ("BUILD", "ERROR")
            return None if under_way else server

        return await eventually(probe, "the server rests") or {}

    async def row(self) -> Instance:
        database = self.cloud.plane.databases.cells["cell1"]
        found = await database.read(partial(instances.get, uuid=self.uuid))
        assert found is not None
        return found

    def disk(self, row: Instance) -> Path:
        assert row.host is not None
        return self.cloud.directory.host("cell1", row.host) / DISKS / f"{self.uuid}_{row.attempt}"

    def disks(self) -> list[tuple[str, int]]:
        """Return the host and attempt of each disk of the server."""
        found = []
        for host in self.cloud.plane.drivers:
            labels = FakeDisks(self.cloud.directory.host("cell1", host) / DISKS).labels()
            found += [(host, attempt) for uuid, attempt in labels if uuid == self.uuid]
        return found

    async def guests(self) -> list[tuple[str, int]]:
        """Return the host and attempt of each guest of the server."""
        found = []
        for host, driver in self.cloud.plane.drivers.items():
            found += [(host, guest.attempt) for guest in await driver.guests() if guest.instance == self.uuid]
        return found

    async def charged(self) -> tuple[int, int]:
        """Return what the project is charged with beside the other server: servers, and their memory in MiB."""
        limits = (await self.user.ask("GET", "/limits")).json()["limits"]["absolute"]
        return int(limits["totalInstancesUsed"]) - 1, int(limits["totalRAMUsed"]) - TINY_MB

    async def held(self) -> tuple[int, list[int]]:
        """Return how many claims schedulers hold of the server, and its attempts that have a place in its group."""
        known = await self.cloud.plane.transport.call(SCHEDULER, ListClaims())
        slots = [slot.key.attempt for slot in known.slots if slot.key.instance == self.uuid]
        return sum(claim.key.instance == self.uuid for claim in known.claims), sorted(slots)

    async def images(self) -> int:
        listed = await self.user.client.get(
            f"{self.cloud.images_url}/v2/images?visibility=private", headers=self._token()
        )
        return sum(image["status"] == "active" for image in listed.json()["images"])

    def fail(self, operation: str, *, always: bool = False) -> None:
        """Let the next such operation of each host fail, or all of them; none where it is empty."""
        rules = (FailureRule(operation=operation, times=None if always else 1),) if operation else ()
        for driver in self.cloud.plane.drivers.values():
            assert isinstance(driver, FakeDriver)
            driver.fail(rules)

    def _token(self) -> dict[str, str]:
        return {"X-Auth-Token": self.user.token}


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    with TemporaryDirectory() as root:
        config = msgspec.structs.replace(
            http_config(Path(root)),
            retention=RetentionSettings(reclaim_instance_interval=86_400, shelved_offload_time=-1),
        )
        made = World(config)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


Story = list[tuple[int, str, int]]


async def lives(story: Story) -> None:
    async with world() as lived:
        life = await begins(lived)
        for number, (drawn, beside, any_of_all) in enumerate(story):
            open_to_it = [act for act in DRAWN if may(life, act) or any_of_all == 0]
            act = open_to_it[drawn % len(open_to_it)]
            if act.name in ("delete", "reset") and life.status not in act.begins_in:
                continue  # it deletes the server for good, or says of it what is not so
            life = await writes(lived, life, f"after {number} actions".encode())
            note(f"{life.status}: {act.name}, {beside}")
            if may(life, act):
                event(f"{act.name}, {beside}")
                life = await does(lived, life, act, beside)
            else:
                assert await lived.ask(act) in (400, 409)
                await matches(lived, life)
        await ends(lived)


async def begins(lived: World) -> Life:
    """Make the server; return what the model knows of it."""
    await lived.begins()
    fresh = lived.disk(await lived.row()).read_bytes()
    return Life(disk=fresh, fresh=fresh)


async def does(lived: World, life: Life, act: Act, beside: str = "") -> Life:
    """Have an action done, and something beside it; return what the server is afterwards."""
    before = await lived.row()
    fails = beside == "fails" and act.operation != ""
    lived.fail({"fails": act.operation, "fails again": act.also_fails}.get(beside, ""))
    if act.lost:
        await evacuated(lived, act, str(before.host))
    elif act.wish:
        await copied(lived, act)
    else:
        assert await lived.ask(act) in (200, 202, 204)
        await happens(lived, beside)
    life = after(life, act, fails=fails)
    await matches(lived, life)
    now_on = (await lived.row()).host
    if act.moves is not None:
        assert (now_on != before.host) is (act.moves and not fails)
    assert now_on != lived.other_host
    lived.fail("")
    return life


async def happens(lived: World, beside: str) -> None:
    """Have the agents, or the whole cloud, begin anew."""
    if beside == "agents":
        await lived.restart_agents()
    elif beside == "cloud":
        await lived.stop()
        await lived.start()


async def evacuated(lived: World, act: Act, host: str) -> None:
    """Have the server leave a host that is lost, which comes back afterwards."""
    await lived.loses(host, act.lost)

    async def taken() -> bool:
        status = await lived.ask(act)
        assert status in (200, 400, 409), status
        return status == 200

    await eventually(taken, "the host is taken for lost")
    await lived.rests()
    await lived.returns(host, act.lost)


async def copied(lived: World, act: Act) -> None:
    """Have the guest copied until that is ended, for by itself it would not end."""
    lived.fail("converge", always=True)
    assert await lived.ask(act) == 202
    await lived.wishes(act.wish)


async def writes(lived: World, life: Life, content: bytes) -> Life:
    """Let the guest write to its disk, where it runs. The file may be one with that of its image: it is replaced."""
    if life.status != "ACTIVE":
        return life
    row = await lived.row()
    disk = lived.disk(row)
    disk.unlink()
    disk.write_bytes(content)
    return replace(life, disk=content)


async def matches(lived: World, life: Life) -> None:
    """Wait until the server is what the model says."""

    async def probe() -> bool:
        server = await lived.rests()
        row = await lived.row()
        told = (server["status"], server["OS-EXT-STS:power_state"])
        held = [(row.host, row.attempt)] if life.has_guest else []
        claims, slots = await lived.held()
        seen = {
            "claims": claims == 0,
            "slots": len(slots) == life.attempts and {number for _, number in held} <= set(slots),
            "told": told == (life.status, life.power_state),
            "guests": await lived.guests() == held,
            "disks": len(lived.disks()) == life.attempts and set(held) <= set(lived.disks()),
            "charged": await lived.charged() == (int(life.is_charged), life.memory_mb),
            "images": await lived.images() == life.all_images,
        }
        lived.seen = {"server": told, "model": life, **seen}
        return all(seen.values())

    try:
        await eventually(probe, "the server is what the model says")
    except AssertionError as error:
        raise AssertionError(str(lived.seen)) from error
    if life.has_guest:
        told = (await lived.admin.ask("GET", f"/servers/{lived.uuid}/os-instance-actions")).text
        assert lived.disk(await lived.row()).read_bytes() == life.disk, told


async def ends(lived: World) -> None:
    """Delete the server for good, and wait until nothing is left of it."""
    answer = await lived.admin.ask("POST", f"/servers/{lived.uuid}/action", {"forceDelete": None})
    assert answer.status_code == 202

    async def nothing() -> bool:
        return not await lived.guests() and not lived.disks() and await lived.charged() == (0, 0)

    await eventually(nothing, "nothing is left")


@pytest.mark.sampled
@pytest.mark.timeout(7200 if everywhere() else 600)
@settings(
    max_examples=40 if everywhere() else examples(2),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(STORIES)
def test_a_server_is_what_the_model_says(story: Story) -> None:
    """A story that fails is not made shorter: each try takes seconds."""
    asyncio.run(lives(story))
