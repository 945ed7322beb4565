"""A cloud that writes its decisions down, and what becomes of them: replayed, and placed elsewhere as a trace."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from skep.config.compute import FakeFailure
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import http_config, serving_cloud, signed_in
from skep.domain.flavors import Flavor
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid
from skep.domain.instances import State
from skep.scheduler.decision_log.reading import entries, segments
from skep.simulator import policies, recorded, simulation
from skep.simulator.replay import Tally, replay

LARGE = Flavor(flavorid="9", name="m1.vast", vcpus=1000, memory_mb=512, root_gb=1)


@asynccontextmanager
async def recorded_cloud(root: Path) -> AsyncIterator[Cloud]:
    """Run a cloud whose log is in `log`; one of its hosts fails some builds."""
    config = quick_config(failures=(FakeFailure(operation="spawn", host="cell1-host1", times=3),))
    scheduler = msgspec.structs.replace(config.scheduler, decision_log=str(root / "log"))
    async with running_cloud(root / "state", msgspec.structs.replace(config, scheduler=scheduler)) as cloud:
        yield cloud


async def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SKEP_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.cli",
        "simulate",
        *arguments,
        env=kept | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def busy(cloud: Cloud) -> int:
    """Build, fail, delete and group servers; return how many were asked for."""
    apart = GroupRule(uuid=GroupUuid("33333333-3333-3333-3333-333333333333"), policy="anti-affinity")
    first = await cloud.create(12)
    grouped = await cloud.create(3, group=apart)
    await cloud.settled([*first, *grouped])
    for uuid in first[:6]:
        await cloud.delete(uuid)
    await cloud.gone(first[:6])
    (nowhere,) = await cloud.create(flavor=LARGE)
    (failed,) = await cloud.settled([nowhere])
    assert failed.state is State.ERROR
    await cloud.settled(await cloud.create(5))
    return 12 + 3 + 1 + 5


async def test_all_decisions_of_a_cloud_come_out_the_same_after_its_end(tmp_path: Path) -> None:
    async with recorded_cloud(tmp_path) as cloud:
        asked = await busy(cloud)
        await cloud.restart()
        await cloud.settled(await cloud.create(4))
    tally = Tally()
    for path in segments(tmp_path / "log"):
        replay(entries(path), tally)
    assert tally.differences == []
    assert tally.decisions == tally.reproduced
    assert tally.decisions - tally.dry_runs >= asked + 4
    assert (tally.segments, tally.incomplete) == (2, 0)
    status, out, errors = await run("--replay", str(tmp_path / "log"), "--json")
    assert (status, errors) == (0, "")
    assert json.loads(out)["reproduced"] == tally.decisions
    status, out, errors = await run("--replay", str(tmp_path / "log"), "--policy", "best-fit", "--json")
    assert (status, errors) == (0, "")
    shown = json.loads(out)
    (other,) = shown["decided"]
    assert other["decisions"] + other["found"] == tally.decisions
    assert 0 < other["differing"] < other["decisions"]
    assert other["refused_by_policy"] == other["refused_as_recorded"] >= 1
    assert [one["policy"] for one in shown["policies"]] == ["recorded", "best-fit"]


async def test_a_recorded_cloud_is_a_trace_with_its_hosts(tmp_path: Path) -> None:
    async with recorded_cloud(tmp_path) as cloud:
        asked = await busy(cloud)
    trace, plan = recorded.read(tmp_path / "log")
    assert len(trace.servers) == asked
    assert sum(server.until is not None for server in trace.servers) >= 1
    assert {host.usage.host for host in plan.hosts} == {f"cell{c}-host{h}" for c in (1, 2) for h in (1, 2, 3)}
    outcome = simulation.run(trace, plan, policies.named("stack"))
    assert (outcome.placed, outcome.refused) == (asked - 1, 1)
    status, out, errors = await run(str(tmp_path / "log"), "--hosts", "2", "--vcpus", "8", "--json")
    assert (status, errors) == (0, "")
    assert json.loads(out)["policies"][0]["servers"] == asked


async def test_a_running_cloud_is_only_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("vmid,cpu,mem,at,lt\n" + "".join(f"{n},1,1,{n},50\n" for n in range(20)))
    async with serving_cloud(http_config(tmp_path)) as cloud, signed_in(cloud) as admin:

        async def hosts() -> Any:
            answer = await admin.client.get(
                f"{cloud.api_url.removesuffix('/v2.1')}/admin/v1/host-states",
                headers={"X-Auth-Token": admin.token},
            )
            return [(one["usage"]["used"], one["claims"]) for one in answer.json()["host_states"] if one["up"]]

        async def all_reported() -> bool:
            return len(await hosts()) == 6

        await eventually(all_reported, "all hosts have reported")
        before = await hosts()
        status, out, errors = await run(
            str(trace), "--live", "--against", "random", "--json", SKEP_STATE__DIRECTORY=str(tmp_path / "state")
        )
        assert (status, errors) == (0, "")
        found = json.loads(out)
        assert [one["policy"] for one in found["policies"]] == ["default", "random"]
        assert [(one["hosts"], one["placed"]) for one in found["policies"]] == [(6, 20), (6, 20)]
        assert await hosts() == before
