"""`skep bench build --driver libvirt`: what Skep adds to the start of a virtual machine, whose own cost is QEMU's."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from skep.cli.benchmarks.build import benchmark_config
from skep.cli.benchmarks.guest_costs import measure
from skep.cli.benchmarks.process import CloudProcess, cloud_process
from skep.domain.errors import Unavailable
from skep.processes.seeds import IMAGE_NAME
from skep.processes.supervisor.real_hosts import check_machine

DISK = b"\xfa\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa"
"""What guests boot: cli, hlt, jump back to hlt. A guest that does nothing takes nothing from who is measured."""
DISK_BYTES = 1 << 20
TOGETHER = 6
DEFINED = 50
LOOK_SECONDS = 0.02
"""Between two looks at a server whose build is timed: so late its end may be seen."""
CALM_LOOK_SECONDS = 1.0
"""Between two looks where CPU is counted."""
IDLE_SECONDS = 20.0
BUILD_SECONDS = 300.0

Progress = Callable[[str], None]


class GuestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. Times in milliseconds, medians where several builds were measured."""

    guests: int
    """Built one after the other, the image there already."""
    before_start_ms: float
    """From the answer to the create to the call that starts the domain."""
    start_ms: float
    """Of that call: QEMU and libvirt."""
    after_start_ms: float
    """From the end of that call to where a client sees the server ACTIVE, which it looks for each 20 ms."""
    own_ms: float
    """All but the call. The aim is 150."""
    first_own_ms: float
    """The same of the first build, which fetched the image."""
    cpu_ms: float
    """Of all processes of the cloud, its database and bus counted, QEMU not, in the time in which a guest is built and
    deleted; the looks of the client, each 20 ms, and what an idle cloud takes in that time are in it."""
    cpu_ms_of: dict[str, float]
    idle_cpu_ms: float
    """Of a second in which nothing happens."""
    idle_cpu_ms_of: dict[str, float]
    build_cpu_ms: float
    """Of a build, with a client that looks once a second, less what an idle cloud takes in that time. The aim is 60."""
    build_cpu_ms_of: dict[str, float]
    """`programs` are those that the agent started and waited for, `compute` the agent without them. The kernel tells
    of hundredths of a second: of a single build programs may take nothing."""
    start_cpu_ms: float
    """Of the agent in the call that starts the domain, a part of `build_cpu_ms`: libvirt, which asks QEMU 400 questions
    there."""
    delete_cpu_ms: float
    """Of a delete, in the same way."""
    delete_cpu_ms_of: dict[str, float]
    qemu_cpu_ms: float
    """Of the QEMU of a guest, counted in none of the others."""
    together_s: float
    """Until guests that were asked for at once, six of them, were ACTIVE."""
    agent_mib: float
    """The agent's peak, with 50 more domains that are defined and switched off. The aim is 120."""


class _Numbers(msgspec.Struct, frozen=True, kw_only=True):
    guests: int
    together: int
    defined: int
    idle_seconds: float


def run(
    *,
    guests: int,
    progress: Progress,
    together: int = TOGETHER,
    defined: int = DEFINED,
    idle_seconds: float = IDLE_SECONDS,
) -> GuestFigures:
    """Start a cloud of many processes with one host of QEMU in software, build guests there, stop the cloud.

    `guests` one after the other, twice: for time and for CPU, before which nothing is done for `idle_seconds`. Then so
    many `together`, then so many that stay `defined`.

    Raises Misconfigured for a machine that lacks the parts, Unavailable for a server that is not built.
    """
    with tempfile.TemporaryDirectory(prefix="skep-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o711)  # PostgreSQL and QEMU, which never run as root, get to their files
        with cloud_process(root, _config(root), cells=1, hosts=1, deployment="processes") as cloud:
            compute, token = cloud.wait_ready(1)
            numbers = _Numbers(guests=guests, together=together, defined=defined, idle_seconds=idle_seconds)
            return asyncio.run(_measured(cloud, compute, token, numbers, progress))


def _config(root: Path) -> str:
    return f"""{benchmark_config(root, first_image=str(_first_image(root)))}
[compute]
driver = "libvirt"
cpu_allocation_ratio = 100.0
ram_allocation_ratio = 10.0
[compute.driver_options]
virt_type = "qemu"
networks = "user"
shutdown_seconds = 0
"""


async def _measured(
    cloud: CloudProcess, compute: str, token: str, numbers: _Numbers, progress: Progress
) -> GuestFigures:
    guests = numbers.guests
    async with httpx.AsyncClient(headers={"X-Auth-Token": token}, timeout=60) as client:
        image = await _image(client, cloud.images_url.removesuffix("/v2"))
        user = _User(client, compute, image, await _flavor(client, compute))
        progress("the first guest")
        first = await user.build()
        await user.delete(first.server)
        progress("guests one after the other")
        cloud.begin_counting()
        built = []
        for _ in range(guests):
            built.append(await user.build())
            await user.delete(built[-1].server)
        cloud.end_counting()
        progress("CPU of nothing, of builds and of deletes")
        calm = _User(client, compute, image, user.flavor, CALM_LOOK_SECONDS)

        async def build() -> str:
            return (await calm.build()).server

        costs = await measure(cloud, guests=guests, idle_seconds=numbers.idle_seconds, build=build, delete=calm.delete)
        progress("guests at once")
        began = time.monotonic()
        several = await asyncio.gather(*(user.build() for _ in range(numbers.together)))
        together_s = time.monotonic() - began
        for one in several:
            await user.delete(one.server)
        progress("domains that stay")
        many = []
        for _ in range(numbers.defined):
            many.append((await user.build()).server)
            await user.stop(many[-1])
        memory = cloud.peak_rss_by_kind().get("compute", 0.0)
        for server in many:
            await user.delete(server)
        starts = {start.server: start for start in _starts(cloud.state)}
        spent = {kind: seconds * 1000 / guests for kind, seconds in cloud.counted.items()}
    spans = [one.spans(starts[one.server]) for one in built]
    before, start, after = (statistics.median(one[number] for one in spans) * 1000 for number in range(3))
    first_before, _, first_after = first.spans(starts[first.server])
    return GuestFigures(
        guests=guests,
        before_start_ms=round(before, 1),
        start_ms=round(start, 1),
        after_start_ms=round(after, 1),
        own_ms=round(before + after, 1),
        first_own_ms=round((first_before + first_after) * 1000, 1),
        cpu_ms=round(sum(spent.values()), 1),
        cpu_ms_of={kind: round(one, 1) for kind, one in sorted(spent.items())},
        idle_cpu_ms=round(sum(costs.idle_ms.values()), 1),
        idle_cpu_ms_of=costs.idle_ms,
        build_cpu_ms=round(sum(costs.build_ms.values()), 1),
        build_cpu_ms_of=costs.build_ms,
        start_cpu_ms=round(statistics.median(starts[server].processor for server in costs.servers) * 1000, 1),
        delete_cpu_ms=round(sum(costs.delete_ms.values()), 1),
        delete_cpu_ms_of=costs.delete_ms,
        qemu_cpu_ms=costs.qemu_ms,
        together_s=round(together_s, 1),
        agent_mib=memory,
    )


class _Start(msgspec.Struct, frozen=True):
    """A call that started a domain."""

    server: str
    ended: float
    """Seconds of the epoch."""
    seconds: float
    processor: float
    """Seconds, of the agent."""


class _Built(msgspec.Struct, frozen=True):
    server: str
    accepted: float
    active: float

    def spans(self, start: _Start) -> tuple[float, float, float]:
        """Return the seconds before, in and after the call that started the domain."""
        return start.ended - start.seconds - self.accepted, start.seconds, self.active - start.ended


class _User:
    """Builds and deletes servers as a client does."""

    def __init__(
        self, client: httpx.AsyncClient, compute: str, image: str, flavor: str, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self.flavor = flavor
        self._client = client
        self._look_seconds = look_seconds
        self._url = f"{compute}/servers"
        self._body = {"server": {"name": "bench", "imageRef": image, "flavorRef": flavor}}

    async def build(self) -> _Built:
        answer = (await self._client.post(self._url, json=self._body)).raise_for_status()
        accepted = time.time()
        server = str(answer.json()["server"]["id"])
        await self._becomes(server, "ACTIVE")
        return _Built(server, accepted, time.time())

    async def stop(self, server: str) -> None:
        (await self._client.post(f"{self._url}/{server}/action", json={"os-stop": None})).raise_for_status()
        await self._becomes(server, "SHUTOFF")

    async def delete(self, server: str) -> None:
        (await self._client.delete(f"{self._url}/{server}")).raise_for_status()
        await self._becomes(server, None)

    async def _becomes(self, server: str, wanted: str | None) -> None:
        """Wait for a status; None: the server is gone."""
        end, status = time.monotonic() + BUILD_SECONDS, ""
        while time.monotonic() < end:
            answer = await self._client.get(f"{self._url}/{server}")
            if answer.status_code == httpx.codes.NOT_FOUND and wanted is None:
                return
            status = str(answer.raise_for_status().json()["server"]["status"])
            if status == wanted:
                return
            if status == "ERROR":
                break
            await asyncio.sleep(self._look_seconds)
        raise Unavailable(f"server {server} is {status}, not {wanted or 'gone'}")


def _first_image(root: Path) -> Path:
    """Write the disk that guests boot. Raises Misconfigured."""
    raw, image = root / "halts.raw", root / "halts.qcow2"
    raw.write_bytes(DISK.ljust(DISK_BYTES, b"\0"))
    check_machine()
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(image)], check=True)  # noqa: S603, S607 - our own words
    return image


async def _image(client: httpx.AsyncClient, images: str) -> str:
    answer = (await client.get(f"{images}/v2/images", params={"name": IMAGE_NAME})).raise_for_status()
    return str(answer.json()["images"][0]["id"])


async def _flavor(client: httpx.AsyncClient, compute: str) -> str:
    said = {"flavor": {"name": "bench", "ram": 64, "vcpus": 1, "disk": 0}}
    return str((await client.post(f"{compute}/flavors", json=said)).raise_for_status().json()["flavor"]["id"])


def _starts(state: Path) -> Iterator[_Start]:
    """Yield what the agents' logs tell of the calls that started domains."""
    for path in (state / "logs").glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if '"guest started"' in line:
                said: dict[str, Any] = json.loads(line)
                ended = datetime.fromisoformat(said["timestamp"]).timestamp()
                yield _Start(said["instance"], ended, said["seconds"], said["processor_seconds"])
