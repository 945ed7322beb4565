"""`skep serve scheduler`: what it waits for, what it says of itself, how it ends, what it refuses."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from skep.cell_conductor.scheduler_times import SchedulerTimes
from skep.cli.main import skep
from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config, SynchronizerSettings, TransportSettings
from skep.contracts.cloud import Cloud, quick_config
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.neighbours.served import bound
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid
from skep.messages.to_scheduler import ListNamespaces
from skep.messages.to_scheduler_liveness import Beat
from skep.processes.servers.nats import NatsServer
from skep.transport.base import SCHEDULER, scheduler_for
from skep.transport.nats import NatsTransport
from tests.support.scheduler_process import SchedulerProcess, shared

Make = Callable[..., SchedulerProcess]
needs_nats = pytest.mark.needs_part("nats-server")


class Slow(Clock):
    """The clock of a database beside which all processes are ahead."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def now(self) -> Timestamp:
        return Timestamp(super().now() - self._seconds * SECOND)


@needs_nats
async def test_it_waits_for_nats_and_says_so(nats_server: NatsServer, scheduler: Make) -> None:
    nats_server.kill()
    process = scheduler()
    await process.launch()

    async def says_why() -> bool:
        return any("messaging: no NATS server answers" in reason for reason in await process.reasons())

    await eventually(says_why, "what it waits for is in /readyz")
    await nats_server.start()
    await process.ready()
    nats_server.kill()

    async def is_not_ready() -> bool:
        return "messaging: there is no connection" in await process.reasons()

    await eventually(is_not_ready, "the loss is in /readyz")
    await nats_server.start()
    await process.ready()
    assert await process.stop() == 0


@needs_nats
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_good_order_while_it_waits(
    nats_server: NatsServer, scheduler: Make, number: signal.Signals
) -> None:
    nats_server.kill()
    process = scheduler()
    await process.launch()

    async def waits() -> bool:
        return "waiting to start" in process.tail()

    await eventually(waits, "it waits")
    process.signal(number)
    assert await process.ended() == 0, process.tail()


@needs_nats
async def test_its_end_loses_no_call(config: Config, scheduler: Make) -> None:
    leaves, stays = scheduler(), scheduler()
    await leaves.start()
    await stays.start()
    caller = NatsTransport(config.transport)
    await caller.open()
    half, all_done = asyncio.Event(), 0

    async def call_often() -> None:
        nonlocal all_done
        for _ in range(200):
            await caller.call(SCHEDULER, ListNamespaces())
            all_done += 1
            if all_done >= 500:
                half.set()

    callers = [asyncio.create_task(call_often()) for _ in range(5)]
    await half.wait()
    assert await leaves.stop() == 0, leaves.tail()
    await asyncio.gather(*callers)
    assert all_done == 1000
    await caller.close()


@needs_nats
async def test_it_says_that_its_clock_is_off(config: Config, scheduler: Make) -> None:
    process, cell, ahead = scheduler(), CellUuid("c1"), 3600
    await process.start()
    conductor = NatsTransport(config.transport)
    await conductor.open()
    times = SchedulerTimes(Slow(ahead))

    async def says_so() -> bool:
        asked_at = Clock().elapsed()
        beat = Beat(cell=cell, conductor="one", pages=(), database="cell1", times=times.told())
        times.answered(await conductor.call(scheduler_for(cell), beat), asked_at)
        shown = await process.clock_ahead("cell1")
        return shown is not None and abs(shown - ahead) < PATIENCE

    await eventually(says_so, "the metric shows it")
    assert '"event":"the clock of this process is off"' in process.tail(200)
    assert '"database":"cell1"' in process.tail(200)
    await conductor.close()
    assert await process.stop() == 0


@needs_nats
async def test_a_backend_that_can_never_serve_ends_it_with_the_reason(scheduler: Make, tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "core", jetstream=False) as core:
        process = scheduler(shared(quick_config(), core.url))
        await process.launch()
        assert await process.ended() == 2
    assert "skep: " in process.tail()
    assert "JetStream" in process.tail()
    assert "Traceback" not in process.tail(200)


@needs_nats
async def test_a_taken_port_ends_it_with_the_reason(scheduler: Make) -> None:
    with bound() as taken:
        taken.listen()
        process = scheduler()
        process.listen_on(taken.getsockname()[1])
        await process.launch()
        assert await process.ended() == 2
    assert "setting `scheduler.health_port`" in process.tail()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, **settings: str) -> str:
    for name, value in settings.items():
        monkeypatch.setenv(f"SKEP_{name}", value)
    result = CliRunner().invoke(skep, ["serve", "scheduler", *arguments], prog_name="skep")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.stderr
    return result.stderr


def test_what_stays_inside_one_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "skep: transport.kind is `memory`, which stays inside one process" in run(monkeypatch)
    said = run(monkeypatch, TRANSPORT__KIND="nats")
    assert "skep: synchronizer.backend is `memory`, which stays inside one process" in said
    assert "skep: synchronizer.backend: " in run(monkeypatch, SYNCHRONIZER__BACKEND="nothing")
    assert "are for a whole cloud" in run(monkeypatch, "--cells", "2")


@pytest.mark.parametrize(
    ("transport", "backend", "named"),
    [("memory", "memory", "transport.kind"), ("memory", "sql", "transport.kind"), ("nats", "memory", "synchronizer")],
)
async def test_a_cloud_without_a_scheduler_of_its_own_needs_what_others_reach(
    tmp_path: Path, transport: str, backend: str, named: str
) -> None:
    config = replace(
        quick_config(),
        transport=TransportSettings(kind="nats" if transport == "nats" else "memory"),
        synchronizer=SynchronizerSettings(backend=backend),
        scheduler=SchedulerSettings(embedded=False),
    )
    cloud = Cloud(tmp_path, config, cells=1, hosts=1)
    with pytest.raises(Misconfigured, match=named):
        await cloud.start()
    cloud.directory.close()


def test_it_knows_no_database_and_nobody_s_identity() -> None:
    program = (
        "import sys, skep.processes.scheduler\n"
        "print([name for name in sys.modules if name.startswith(('skep.database', 'skep.standalone.identity', "
        "'skep.neighbours', 'skep.api', 'skep.admin', 'sqlalchemy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == "[]"
