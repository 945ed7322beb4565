"""A server that counts goes live from host to host of a whole cloud: API, conductors, two agents, two libvirtds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep_lab.crash.counting_guests import COUNTS, counted
from skep_lab.libvirt_daemons import make_passable
from tests.functional.test_images_of_servers import Images
from tests.support.libvirt_daemons import DAEMON_PARTS, HOSTS, two_hosts
from tests.support.memory_volumes import MemoryVolumes

pytestmark = [*DAEMON_PARTS, pytest.mark.timeout(600)]

VERSION = "2.65"


class Counting(Images):
    """A cloud of two hosts with a server that counts."""

    directories: dict[str, Path]
    uuid: str

    async def host(self) -> str:
        return str((await self.server(self.uuid))["OS-EXT-SRV-ATTR:host"])

    async def build(self, **keys: Any) -> None:
        """Have the server, and wait until it counts."""
        body = {"name": "one", "flavorRef": "counts", "networks": "none", **keys}
        made = await self.session.ask("POST", "/servers", {"server": body}, version=VERSION)
        assert made.status_code == 202, made.text
        self.uuid = str(made.json()["server"]["id"])
        await self.calm(self.uuid, "ACTIVE")
        await self.counts_on()

    async def counted(self) -> int:
        """Return how far the server has counted."""
        answer = await self.session.ask("POST", f"/servers/{self.uuid}/action", {"os-getConsoleOutput": {}})
        return counted(answer.json()["output"].encode()) if answer.status_code == 200 else 0

    async def counts_on(self, before: int = 0) -> None:
        async def so() -> bool:
            return await self.counted() > before

        await eventually(so, "the server counts on")

    async def migrate(self) -> str:
        """Begin a live migration that never ends by itself; return what it is when its memory is copied."""
        body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
        await self.act(self.uuid, body, VERSION)
        found: list[str] = []

        async def copied() -> bool:
            answer = await self.session.ask("GET", f"/servers/{self.uuid}/migrations", version=VERSION)
            under_way = answer.json()["migrations"]
            found[:] = [str(one["id"]) for one in under_way if (one["memory_processed_bytes"] or 0) > 0]
            return bool(found)

        await eventually(copied, "the memory of the guest is copied")
        return f"/servers/{self.uuid}/migrations/{found[0]}"

    def left(self, host: str) -> list[str]:
        return [path.name for path in (self.directories[host] / "guests").iterdir()]


@asynccontextmanager
async def counting_cloud(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    """Run a cloud of two hosts without servers."""
    with two_hosts(monkeypatch, {"migration_mib_per_second": 1}) as directories:
        async with serving_cloud(http_config(root), cells=1, hosts=2) as cloud, signed_in(cloud) as session:
            counting = Counting(cloud, session)
            counting.directories = directories
            flavor = {"id": "counts", "name": "counts", "ram": 64, "vcpus": 1, "disk": 0}
            assert (await session.ask("POST", "/flavors", {"flavor": flavor})).status_code == 200
            yield counting


@pytest.fixture
async def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counting]:
    async with counting_cloud(tmp_path, monkeypatch) as counting:
        await counting.build(imageRef=await counting.upload(COUNTS))
        yield counting


async def test_a_server_counts_on_elsewhere_or_where_it_was(counting: Counting) -> None:
    before, migration = await counting.host(), await counting.migrate()
    at = await counting.counted()
    answer = await counting.session.ask("POST", f"{migration}/action", {"force_complete": None}, version=VERSION)
    assert answer.status_code == 202, answer.text
    await counting.calm(counting.uuid, "ACTIVE")
    after = await counting.host()
    assert after != before
    await counting.counts_on(at)

    async def gone() -> bool:
        return counting.left(before) == []

    await eventually(gone, "nothing is left on the source")

    migration = await counting.migrate()
    at = await counting.counted()
    assert (await counting.session.ask("DELETE", migration, version=VERSION)).status_code == 202
    await counting.calm(counting.uuid, "ACTIVE")
    assert await counting.host() == after
    await counting.counts_on(at)
    await eventually(gone, "nothing is left on the target of the migration that was aborted")
    assert (await counting.session.ask("DELETE", f"/servers/{counting.uuid}")).status_code == 204

    async def nothing() -> bool:
        return counting.left(before) == counting.left(after) == []

    await eventually(nothing, "nothing is left of the server")


async def test_a_server_counts_on_over_the_volume_that_it_boots_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hosts have it while the guest is copied; then the one that has the server."""
    volumes = MemoryVolumes()
    monkeypatch.setattr("skep.processes.own_services.NoVolumes", lambda: volumes)
    async with counting_cloud(tmp_path, monkeypatch) as counting:
        place = counting.directories[HOSTS[0]].parent / "volumes"
        make_passable(place)
        root = volumes.new_volume()
        (place / root).write_bytes(COUNTS)
        volumes.reached[root] = ("local", {"device_path": str(place / root)})
        disk = {"source_type": "volume", "uuid": root, "destination_type": "volume", "boot_index": 0}
        await counting.build(block_device_mapping_v2=[disk])
        before, migration = await counting.host(), await counting.migrate()
        [after] = set(HOSTS) - {before}
        at = await counting.counted()
        assert sorted(volumes.of(root)) == sorted((counting.uuid, "attached", host) for host in HOSTS)
        assert (await counting.session.ask("DELETE", migration, version=VERSION)).status_code == 202
        await counting.calm(counting.uuid, "ACTIVE")

        async def only_on(host: str) -> None:
            async def so() -> bool:
                others = [name for name in HOSTS if name != host and counting.left(name)]
                return volumes.of(root) == [(counting.uuid, "attached", host)] and not others

            await eventually(so, f"only {host} has the volume")

        await only_on(before)
        await counting.counts_on(at)
        migration = await counting.migrate()
        at = await counting.counted()
        answer = await counting.session.ask("POST", f"{migration}/action", {"force_complete": None}, version=VERSION)
        assert answer.status_code == 202, answer.text
        await counting.calm(counting.uuid, "ACTIVE")
        assert await counting.host() == after
        await only_on(after)
        await counting.counts_on(at)
        assert (await counting.session.ask("DELETE", f"/servers/{counting.uuid}")).status_code == 204

        async def nothing() -> bool:
            return not volumes.attachments and counting.left(before) == counting.left(after) == []

        await eventually(nothing, "nothing is left of the server")
