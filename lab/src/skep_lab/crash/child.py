"""A whole cloud that kills itself where it is told to: `run_child` in a process of its own.

It serves like `skep up`. Each line of its standard input is a `ChildOrder` as JSON: at the place of a `Point` it sends
itself SIGKILL, so nothing is flushed, closed or answered; a host that is lost has no power, and is silent until it is
back or the cloud starts anew. It says on its standard output, a JSON object in a line, when it has started, when it is
armed, and where it dies. At the end of its input it stops in good order, so it does not outlive its test.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import uvloop

from skep.config.sections import Config
from skep.contracts.cloud import hosts_up
from skep.database.api import holders
from skep.database.engine import Unit
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError
from skep.processes.all_in_one import AllInOneCloud, make_cloud
from skep.super_conductor import moves
from skep.telemetry import logs
from skep.telemetry.metrics import Metrics
from skep.telemetry.steps import CrashPoint, Steps
from skep_lab.crash.calls import When, tell_of_calls
from skep_lab.crash.forks import take
from skep_lab.crash.points import Point
from skep_lab.crash.power import cut_power

LINGER_SECONDS = 0.3
"""For how long the row of a server stays that was unshelved in another cell: a walk has no releases that need it."""
AMID_SECONDS = 0.1
"""So long a call of libvirt or a program is under way when the process dies amid it."""
FIRST_LOOK, SETTLE, LEASE = SECOND // 2, 12 * SECOND, 5 * SECOND
"""As those of `skep.database.api.holders`, where a request is given up after 2 s."""
LOOKS, LOOK_SECONDS = 40, 0.05
"""How often it is looked whether the hosts of a new process are up, and how far apart."""


class StartOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: the child reads it from a file."""

    config: Config
    cells: int
    hosts: int


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that the child reads: one of these."""

    point: Point | None = None
    lost: str = ""
    """The name of a host that loses its power."""
    back: str = ""
    """The name of a host that was lost and starts."""
    calls: bool = False
    """Whether it is to say what its driver has called since it was asked before."""


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that the child writes."""

    event: Literal["started", "armed", "dies", "lost", "back", "calls"]
    api_url: str = ""
    identity_url: str = ""
    images_url: str = ""
    point: Point | None = None
    calls: tuple[str, ...] = ()


def say(said: Said) -> None:
    """Write one line at once: the next thing may be the end."""
    os.write(sys.stdout.fileno(), msgspec.json.encode(said) + b"\n")


class Switch:
    """Ends the process at the armed point."""

    def __init__(self) -> None:
        self._armed: Point | None = None
        self._passed = 0
        self._called: list[str] = []
        self._steps: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("steps", default=())

    def arm(self, point: Point) -> None:
        """End the process there; an earlier point is forgotten."""
        self._armed, self._passed = point, 0

    async def at_step(self, point: CrashPoint) -> None:
        """Pass a crash point of a step. A write knows by its context which steps it is part of."""
        within = self._steps.get()
        self._steps.set((*within, point.step) if point.when == "before" else within[:-1])
        armed = self._armed
        if armed is not None and armed.step == point.step and armed.way == point.when:
            self._pass(armed)

    def at_commit(self, moment: Literal["before", "after"], unit: Unit[Any], context: contextvars.Context) -> None:
        """Pass a commit; called in the thread that writes."""
        armed = self._armed
        if armed is None:
            return
        if armed.step:
            here = armed.way == "lost" and moment == "after" and armed.step in context.get(self._steps, ())
        else:
            here = armed.unit == named(unit) and moment == ("before" if armed.way == "before" else "after")
        if here:
            self._pass(armed)

    def at_call(self, name: str, when: When) -> None:
        """Pass a call of the driver; called in the thread that makes it."""
        armed = self._armed
        if armed is not None and armed.call == name:
            if armed.way == when:
                self._pass(armed)
            elif armed.way == "amid" and when == "before":
                self._pass(armed, AMID_SECONDS)
        if when == "before":
            self._called.append(name)

    def called(self) -> tuple[str, ...]:
        """Return what the driver has called since this was asked before."""
        called, self._called = self._called, []
        return tuple(called)

    def _pass(self, armed: Point, later: float = 0.0) -> None:
        """Die if it is time, or so many seconds later."""
        self._passed += 1
        if self._passed == armed.nth:
            say(Said(event="dies", point=armed))
            if later:
                threading.Timer(later, _die).start()
            else:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def named(unit: Unit[Any]) -> str:
    """Return the name of the function behind a unit."""
    function = unit.func if isinstance(unit, partial) else unit
    return f"{function.__module__}.{function.__qualname__}"


async def serve(order: StartOrder) -> None:
    """Run the cloud until the input ends or the switch goes."""
    switch = Switch()
    if order.config.compute.driver == "libvirt":
        from skep.compute.drivers.libvirt.disks import GUESTS  # what it needs is not installed everywhere

        guests = Path(order.config.compute.driver_options["directory"], GUESTS)
        tell_of_calls({guests: "GUEST"}, switch.at_call)
    cloud = make_cloud(
        order.config, cells=order.cells, hosts=order.hosts, steps=Steps(Metrics(), crash_hook=switch.at_step)
    )
    await cloud.start()
    try:
        for database in (cloud.plane.databases.api, *cloud.plane.databases.cells.values()):
            database.commit_hook = switch.at_commit
        beating = asyncio.create_task(_beat_early(cloud))
        try:
            await _obey(switch, cloud)
        finally:
            beating.cancel()
    finally:
        await cloud.stop()


async def _beat_early(cloud: AllInOneCloud) -> None:
    """Wait for all hosts of a cloud that starts: a walk starts very often, and would wait a second for each beat."""
    for _ in range(LOOKS):
        with contextlib.suppress(SkepError):
            if await hosts_up(cloud.plane):
                return
        await asyncio.sleep(LOOK_SECONDS)


async def _obey(switch: Switch, cloud: AllInOneCloud) -> None:
    said = Said(event="started", api_url=cloud.api_url, identity_url=cloud.identity_url, images_url=cloud.images_url)
    say(said)
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
        if told.lost:
            await _lose(cloud, told.lost)
            say(Said(event="lost"))
        if told.back:
            await _return(cloud, told.back)
            say(Said(event="back"))


async def _lose(cloud: AllInOneCloud, host: str) -> None:
    """End the agent of a host and cut the power of its guests; one that is lost already stays so."""
    agent = cloud.plane.agents.pop(host, None)
    if agent is not None:
        await agent.stop()
        cloud.plane.drivers.pop(host).close()
        [home] = cloud.directory.root.glob(f"hosts/*/{host}")
        cut_power(home)


async def _return(cloud: AllInOneCloud, host: str) -> None:
    """Start the agent of a host, unless it runs."""
    if host not in cloud.plane.agents:
        [home] = cloud.directory.root.glob(f"hosts/*/{host}")
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == home.parent.name]
        await cloud.plane.start_agent(cell, host)


def look_soon() -> None:
    """Have servers looked at soon that may have ports or volumes of another service: a walk gives requests up early."""
    holders.FIRST_LOOK, holders.SETTLE, holders.LEASE = FIRST_LOOK, SETTLE, LEASE


def run_child(order: str, environment: Mapping[str, str], orders: Any, said: Any, log: Any) -> None:
    """Be the child: serve what the file `order` says, in its directory, with what `skep_lab.crash.forks` passes."""
    take(environment, orders, said, log)
    faulthandler.enable()
    moves.LINGER_SECONDS = LINGER_SECONDS
    look_soon()
    os.chdir(Path(order).parent)
    wanted = msgspec.json.decode(Path(order).read_bytes(), type=StartOrder)
    logs.configure(wanted.config.log.level, wanted.config.log.format)
    uvloop.run(serve(wanted))
