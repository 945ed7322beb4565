"""Builds beside a Neutron and a Cinder, whose CPU is told apart from Skep's own.

    python -m skep_lab.benchmarks.builds_beside --servers 300 --hosts 20 --ports 2 --volumes 1

The neighbours are Skep's own identity, images and networks and the twin of Cinder, in one process of their own. The
cloud reaches them over HTTP, as a Keystone, a Glance, a Neutron and a Cinder.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import click
import httpx
import msgspec
import uvloop

from skep.cli.benchmarks import process_tree
from skep.cli.benchmarks.build_load import Offered, offer
from skep.cli.benchmarks.process import cloud_process
from skep.contracts.neighbours.served import PASSWORDS, ServedNeighbours, neighbours
from skep.database.api.images import Viewer
from skep.domain.clock import Clock
from skep.domain.errors import Unavailable
from skep.processes.ports import free_port
from skep.processes.seeds import clouds_yaml
from skep.standalone.identity.settings import standard_catalogue
from skep_lab.cinder_twin.served import served_twin

START_SECONDS = 60.0
_ATTACHMENTS = {"OpenStack-API-Version": "volume 3.44"}
DATA = b"what a disk begins with"


class NeighbourAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the neighbours answer."""

    identity: str
    images: str
    networks: str
    volumes: str


class BesideFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to: CPU by server, of the cloud and of its neighbours."""

    servers: int
    ports: int
    volumes: int
    seconds: float
    cpu_ms_per_server: float
    cpu_ms_of_neighbours: float
    made_by_neighbours: dict[str, int]
    """Ports and volumes of servers, as the neighbours list them."""
    errors: int
    stuck: int


def run(offered: Offered, hosts: int) -> BesideFigures:
    """Start the neighbours and a cloud beside them, create the servers, wait for all, and stop."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        root = Path(name)
        port = free_port()
        with _neighbours(root, port) as (process, at):
            config = _config(root, port, at, offered)
            with cloud_process(root, config, cells=1, hosts=hosts) as cloud:
                compute, token = cloud.wait_ready(hosts)
                before = process_tree.cpu_by_kind(process.pid)
                load = uvloop.run(offer(cloud, compute, token, offered, lambda _what, _done, _of: None))
                spent = sum(process_tree.cpu_by_kind(process.pid).values()) - sum(before.values())
                made = _made(at, token)
    return BesideFigures(
        servers=offered.servers,
        ports=offered.ports,
        volumes=offered.volumes,
        seconds=round(load.seconds, 1),
        cpu_ms_per_server=round(sum(cloud.counted.values()) * 1000 / offered.servers, 2),
        cpu_ms_of_neighbours=round(spent * 1000 / offered.servers, 2),
        made_by_neighbours=made,
        errors=load.errors,
        stuck=load.stuck,
    )


def _made(at: NeighbourAddresses, token: str) -> dict[str, int]:
    """Count what servers have of the neighbours."""
    with httpx.Client(headers={"X-Auth-Token": token}, timeout=60) as client:
        ports = client.get(f"{at.networks}/v2.0/ports").raise_for_status().json()["ports"]
        attached = client.get(f"{at.volumes}/attachments/detail", headers=_ATTACHMENTS).raise_for_status().json()
    return {
        "ports": sum(one["device_owner"].startswith("compute:") for one in ports),
        "volumes": len(attached["attachments"]),
    }


@contextlib.contextmanager
def _neighbours(root: Path, port: int) -> Iterator[tuple[subprocess.Popen[bytes], NeighbourAddresses]]:
    """Run the neighbours in a process for the length of a block. Raises Unavailable where they do not begin."""
    command = [sys.executable, "-m", "skep_lab.benchmarks.builds_beside", "--serve", str(root), "--port", str(port)]
    with (root / "neighbours.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        ready, end = root / "neighbours.json", time.monotonic() + START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"the neighbours did not begin: {(root / 'neighbours.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield process, msgspec.json.decode(ready.read_bytes(), type=NeighbourAddresses)
    finally:
        process.terminate()
        process.wait()


def _config(root: Path, port: int, at: NeighbourAddresses, offered: Offered) -> str:
    networks = f'kind = "neutron"\nendpoint = "{at.networks}"' if offered.ports else 'kind = "none"'
    volumes = f'kind = "cinder"\nendpoint = "{at.volumes}"' if offered.volumes else 'kind = "none"'
    return f"""
[state]
directory = "{root / "state"}"
[api]
port = {port}
backlog_limit = 1000000
[identity]
kind = "keystone"
auth_url = "{at.identity}"
username = "admin"
password = "{PASSWORDS["admin"]}"
project_name = "admin"
[images]
kind = "glance"
endpoint = "{at.images}"
[networks]
{networks}
[volumes]
{volumes}
[quota]
instances = -1
cores = -1
ram = -1
[compute.images]
auth_url = "{at.identity}"
endpoint = "{at.images}"
username = "admin"
password = "{PASSWORDS["admin"]}"
project_name = "admin"
[compute.fake]
spawn_delay = 0
destroy_delay = 0
power_delay = 0
copy_delay = 0
"""


async def _serve(root: Path, port: int) -> None:
    """Serve the neighbours until the process is told to end."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    folder = root / "neighbours"
    folder.mkdir()
    async with neighbours(folder, Clock()) as behind, behind.served(), served_twin(behind) as twin:
        settings = behind.identity.settings
        url = f"http://127.0.0.1:{port}/v2.1"
        catalogue = standard_catalogue(url, settings.public_url, behind.images_url, behind.networks_url)
        behind.identity.settings = msgspec.structs.replace(settings, catalogue=catalogue)
        await _image(behind)
        state = root / "state"
        state.mkdir(mode=0o700)
        (state / "clouds.yaml").write_text(clouds_yaml(settings.public_url, PASSWORDS))
        at = NeighbourAddresses(
            identity=behind.identity_url,
            images=behind.images_url,
            networks=behind.networks_url,
            volumes=twin.place.url,
        )
        (root / "neighbours.new").write_bytes(msgspec.json.encode(at))
        (root / "neighbours.new").rename(root / "neighbours.json")
        await over.wait()


async def _image(behind: ServedNeighbours) -> None:
    said = {"name": "tiny", "visibility": "public", "disk_format": "raw", "container_format": "bare"}
    owner = Viewer(project_id=behind.first.project_ids["admin"], is_admin=True)
    made = await behind.images.create(said, owner)

    async def pieces() -> AsyncIterator[bytes]:
        yield DATA

    await behind.images.upload(made.id, pieces(), owner)


@click.command()
@click.option("--servers", type=click.IntRange(1, 100_000), default=300, show_default=True, help="Servers to create.")
@click.option("--hosts", type=click.IntRange(1, 1000), default=20, show_default=True, help="Fake hosts.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=32, show_default=True, help="Creates at once.")
@click.option("--ports", type=click.IntRange(0, 10), default=2, show_default=True, help="Ports of each server.")
@click.option("--volumes", type=click.IntRange(0, 10), default=1, show_default=True, help="New volumes of each server.")
@click.option("--serve", type=click.Path(path_type=Path), hidden=True)
@click.option("--port", type=int, hidden=True)
def main(
    servers: int, hosts: int, concurrency: int, ports: int, volumes: int, serve: Path | None, port: int | None
) -> None:
    """Build servers with ports and volumes, and tell the CPU of the cloud from that of its neighbours."""
    if serve is not None and port is not None:
        uvloop.run(_serve(serve, port))
        return
    figures = run(Offered(servers=servers, concurrency=concurrency, ports=ports, volumes=volumes), hosts)
    click.echo(msgspec.json.encode(figures).decode())
    sys.exit(1 if figures.errors or figures.stuck else 0)


if __name__ == "__main__":
    main()
