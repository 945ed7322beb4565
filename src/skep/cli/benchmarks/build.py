"""`skep bench build`: servers through the whole way of a build, over HTTP, with everything on that a cloud has on."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from skep.cli.benchmarks.build_load import Offered, Progress, offer
from skep.cli.benchmarks.leftovers import leftover_rows
from skep.cli.benchmarks.process import Deployment, cloud_process


class BuildFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. CPU is the cloud's, its databases and its bus counted, the client apart."""

    deployment: Deployment
    servers: int
    hosts: int
    cells: int
    concurrency: int
    rate: float
    """Creates offered a second; 0: `concurrency` at once."""
    together: bool
    """Whether one request asked for all."""
    ports: int
    """Of each server."""
    seconds: float
    servers_per_s: float
    cpu_ms_per_server: float
    cpu_ms_per_server_of: dict[str, float]
    """The same, by role and server; all in one process is `all-in-one`."""
    post_p50_ms: float
    post_p99_ms: float
    errors: int
    stuck: int
    leftover_rows: int
    rss_mib: float
    """Of the process that was started, its peak; see `rss_mib_of` where it has children."""
    idle_rss_mib: float
    rss_mib_of: dict[str, float]
    """The peak of the largest process of each kind."""


def run(*, deployment: Deployment, offered: Offered, hosts: int, cells: int, progress: Progress) -> BuildFigures:
    """Start a cloud with its databases on disk, create the servers, wait for all, stop the cloud."""
    per_cell = math.ceil(hosts / cells)
    networks = offered.ports > 0
    with tempfile.TemporaryDirectory(prefix="skep-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o711)  # PostgreSQL, which never runs as root, gets to its data
        config = benchmark_config(root, networks=networks)
        with cloud_process(root, config, cells=cells, hosts=per_cell, deployment=deployment) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            idle = cloud.memory_mib("VmRSS")
            load = uvloop.run(offer(cloud, compute, token, offered, progress))
            rss, rss_of = cloud.memory_mib("VmHWM"), cloud.peak_rss_by_kind()
            left = leftover_rows(cloud.state, compute, token)
    spent = {kind: seconds * 1000 / offered.servers for kind, seconds in cloud.counted.items()}
    return BuildFigures(
        deployment=deployment,
        servers=offered.servers,
        hosts=per_cell * cells,
        cells=cells,
        concurrency=offered.concurrency,
        rate=offered.rate,
        together=offered.together,
        ports=offered.ports,
        seconds=round(load.seconds, 2),
        servers_per_s=round(load.active / load.seconds, 1),
        cpu_ms_per_server=round(sum(spent.values()), 2),
        cpu_ms_per_server_of={kind: round(one, 2) for kind, one in sorted(spent.items())},
        post_p50_ms=_percentile(load.posts, 0.50),
        post_p99_ms=_percentile(load.posts, 0.99),
        errors=load.errors,
        stuck=load.stuck,
        leftover_rows=left,
        rss_mib=round(rss, 1),
        idle_rss_mib=round(idle, 1),
        rss_mib_of=rss_of,
    )


def benchmark_config(root: Path, *, networks: bool = False, first_image: str = "") -> str:
    """Return a configuration (TOML) with free ports, no quota, and fake hosts that take no time.

    Without networks, as releases before 0.10.0 were measured.
    """
    return f"""
[state]
directory = "{root / "state"}"
[api]
port = 0
backlog_limit = 1000000
[identity]
port = 0
[images]
port = 0
images_per_project = -1
first_image = "{first_image}"
[networks]
kind = "{"embedded" if networks else "none"}"
port = 0
quota_port = -1
[quota]
instances = -1
cores = -1
ram = -1
[compute.fake]
spawn_delay = 0
destroy_delay = 0
power_delay = 0
copy_delay = 0
"""


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 1) if ordered else 0.0
