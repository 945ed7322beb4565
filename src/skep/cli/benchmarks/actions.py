"""`skep bench actions`: what actions on servers cost, over HTTP, beside builds of the same servers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import uvloop

from skep.cli.benchmarks.actions_load import IMAGE, LARGER, ActionsLoad, MeasuredRequest
from skep.cli.benchmarks.build import benchmark_config
from skep.cli.benchmarks.process import Deployment, cloud_process
from skep.domain.errors import Misconfigured

BUILD = "build"
SNAPSHOT = "snapshot"
LIVE = {"host": None, "block_migration": False, "disk_over_commit": False}
ACTIONS: Mapping[str, tuple[MeasuredRequest, ...]] = {
    "stop": (MeasuredRequest(body={"os-stop": None}, status="SHUTOFF"),),
    "start": (MeasuredRequest(body={"os-start": None}, status="ACTIVE"),),
    "reboot": (MeasuredRequest(body={"reboot": {"type": "HARD"}}, status="ACTIVE"),),
    "rebuild": (MeasuredRequest(body={"rebuild": {"imageRef": IMAGE}}, status="ACTIVE"),),
    SNAPSHOT: (MeasuredRequest(body={"createImage": {"name": SNAPSHOT}}, status="ACTIVE", image=SNAPSHOT),),
    "migrate with confirm": (
        MeasuredRequest(body={"migrate": None}, status="VERIFY_RESIZE"),
        MeasuredRequest(body={"confirmResize": None}, status="ACTIVE"),
    ),
    "live migration": (MeasuredRequest(body={"os-migrateLive": LIVE}, status="ACTIVE"),),
    "resize with confirm": (
        MeasuredRequest(body={"resize": {"flavorRef": LARGER}}, status="VERIFY_RESIZE"),
        MeasuredRequest(body={"confirmResize": None}, status="ACTIVE"),
    ),
    "shelve": (MeasuredRequest(body={"shelve": None}, status="SHELVED_OFFLOADED"),),
    "unshelve": (MeasuredRequest(body={"unshelve": None}, status="ACTIVE"),),
}
"""What is measured, in this order: requests for each server, one after the other. Each begins and ends ACTIVE, but for
`stop` and `start`, `shelve` and `unshelve`, which belong together."""
OF_A_HOST = 24
"""Servers for which a host has room, twice: a server that moves is held on two hosts."""


class ActionsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. CPU is the cloud's, its databases and its bus counted, the client apart."""

    deployment: Deployment
    servers: int
    hosts: int
    cells: int
    concurrency: int
    cpu_ms: dict[str, float]
    """Of one server, by the name of the action; `build` is its build. An action that was refused has none."""
    builds: dict[str, float]
    """The same as a number of builds."""
    cpu_ms_of: dict[str, dict[str, float]]
    """By action, then by role and server; all in one process is `all-in-one`."""
    seconds: dict[str, float]
    """From the first request until all servers are where the action leaves them."""
    refused: dict[str, int]
    """Requests without success, by action: hosts of their own processes may not be able to store images."""
    unfinished: int
    """Servers that an action left elsewhere, or images without bytes, when the time was over."""


def run(
    *, deployment: Deployment, servers: int, concurrency: int, hosts: int, cells: int, progress: Callable[[str], None]
) -> ActionsFigures:
    """Start a cloud with its databases on disk, build the servers, measure one action after the other, stop the cloud.

    Raises Misconfigured when the hosts have no room for servers that move.
    """
    per_cell = math.ceil(hosts / cells)
    if per_cell < 2 or servers > OF_A_HOST * (per_cell - 1) * cells:
        raise Misconfigured(f"--hosts: expected at least 2 in each cell, and one for {OF_A_HOST} servers beside it")
    with tempfile.TemporaryDirectory(prefix="skep-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o711)  # PostgreSQL, which never runs as root, gets to its data
        with cloud_process(root, benchmark_config(root), cells=cells, hosts=per_cell, deployment=deployment) as cloud:
            compute, token = cloud.wait_ready(per_cell * cells)
            load = ActionsLoad(cloud, compute, token, servers, concurrency)
            uvloop.run(load.run(BUILD, ACTIONS, progress))
    milliseconds = {
        action: {kind: seconds * 1000 / servers for kind, seconds in spent.items()}
        for action, spent in load.spent.items()
        if not load.refused[action]
    }
    whole = {action: sum(of.values()) for action, of in milliseconds.items()}
    return ActionsFigures(
        deployment=deployment,
        servers=servers,
        hosts=per_cell * cells,
        cells=cells,
        concurrency=concurrency,
        cpu_ms={action: round(spent, 2) for action, spent in whole.items()},
        builds={action: round(spent / whole[BUILD], 2) if whole.get(BUILD) else 0.0 for action, spent in whole.items()},
        cpu_ms_of={
            action: {kind: round(spent, 2) for kind, spent in sorted(of.items())} for action, of in milliseconds.items()
        },
        seconds={action: round(seconds, 2) for action, seconds in load.seconds.items()},
        refused=dict(+load.refused),
        unfinished=load.unfinished,
    )
