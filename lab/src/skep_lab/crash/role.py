"""One role of a cloud of processes that kills itself where it is told to: `run_child` in a process of its own.

It does what `skep serve ROLE` does, by the same parts, and reads its configuration from the same variables. It is
forked from a process that has imported everything, since importing costs more than starting. Its clock may be wrong by
a constant. Lines of JSON on its standard input are `ChildOrder`s, as for `skep_lab.crash.child`, with a point, or for
the calls of an agent's driver `libvirt`; a point without step, unit and call disarms it. At the end of its input it
stops in good order, so it does not outlive its test.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

import msgspec
import uvloop

from skep.cli.serving import serve
from skep.config.loading import load
from skep.config.sections import Config
from skep.database.engine import Database
from skep.domain.clock import Clock, Timestamp
from skep.processes.api import ApiProcess
from skep.processes.cell_conductor import CellConductorProcess
from skep.processes.compute import ComputeProcess
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.scheduler import SchedulerProcess
from skep.processes.super_conductor import SuperConductorProcess
from skep.telemetry import logs
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep_lab.crash.calls import tell_of_host
from skep_lab.crash.child import ChildOrder, Said, Switch, say
from skep_lab.crash.forks import take


class RoleOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to start."""

    role: str
    arguments: tuple[str, ...] = ()
    """As `skep serve ROLE` takes them: nothing, or an option and its value."""
    clock_offset: int = 0
    """Microseconds by which its clock is ahead."""


class WrongClock(Clock):
    """A wall clock that is ahead of the others', or behind them."""

    def __init__(self, offset: int) -> None:
        """Take microseconds."""
        self._offset = offset

    def now(self) -> Timestamp:
        """Return the current time as this clock has it."""
        return Timestamp(super().now() + self._offset)


def make_role(order: RoleOrder, config: Config, switch: Switch) -> Role:
    """Return a role that has not started. Raises Misconfigured when the configuration does not go with it."""
    clock, metrics = WrongClock(order.clock_offset), Metrics()
    steps = Steps(metrics, crash_hook=switch.at_step)
    process = Process(config, clock, metrics, steps, Notifier(clock))
    named = order.arguments[-1] if order.arguments else ""
    if order.role == "cell-conductor":
        return CellConductorProcess(process, named)
    if order.role == "compute":
        return ComputeProcess(process, named)
    if order.role == "scheduler":
        return SchedulerProcess(config, process=process)
    return {"api": ApiProcess, "super-conductor": SuperConductorProcess}[order.role](process)


async def run(order: RoleOrder, config: Config) -> None:
    """Serve until SIGTERM, the end of the input, or the switch."""
    switch = Switch()
    Database.commit_hook_of_new = switch.at_commit
    role = make_role(order, config, switch)
    if isinstance(role, ComputeProcess) and config.compute.driver == "libvirt":
        tell_of_host(config, role.directory, switch.at_call)
    obeying = asyncio.create_task(_obey(switch))

    async def started() -> None:
        say(Said(event="started"))

    try:
        await serve(role, started, config.process.drain_seconds)
    finally:
        obeying.cancel()


async def _obey(switch: Switch) -> None:
    lines = asyncio.StreamReader()
    # What Python calls standard input was something else when this process was forked.
    orders = os.fdopen(0, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), orders)
    while line := await lines.readline():
        told = msgspec.json.decode(line, type=ChildOrder)
        if told.point is not None:
            switch.arm(told.point)
            say(Said(event="armed", point=told.point))
        if told.calls:
            say(Said(event="calls", calls=switch.called()))
    os.kill(os.getpid(), signal.SIGTERM)


def run_child(order: RoleOrder, environment: Mapping[str, str], orders: Any, said: Any, log: Any) -> None:
    """Be the child: with these variables, and standard input, output and error that its parent opened (`DupFd`)."""
    take(environment, orders, said, log)
    config = load(None, os.environ).config
    logs.configure(config.log.level, config.log.format)
    uvloop.run(run(order, config))
