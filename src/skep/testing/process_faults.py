"""What can happen to a cloud of processes: each fault is done, lasts for a while, and is undone.

    faults = ProcessFaults(cloud, dice, wait)
    await faults.do("pause cell-conductor")

Whatever a fault breaks is whole again when it returns; `heal` sees to it when one was left in the midst.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from skep.domain.builds import STEPS
from skep.domain.clock import SECOND
from skep.testing.crash_points import Point, points_of
from skep.testing.process_child import NOWHERE, RoleChild
from skep.testing.process_cloud import ProcessCloud

ROLES = ("api", "super-conductor", "scheduler", "cell-conductor", "compute")
DOWN_SECONDS = (0.0, 3.0)
"""How long a killed process or server is missing."""
PAUSED_SECONDS = (0.5, 8.0)
"""Leases last for 2 s in these clouds."""
CUT_SECONDS = (1.0, 12.0)
POINT_SECONDS = 4.0
"""How long it is waited for somebody to come to a point."""
WRONG_SECONDS = 20
"""By so much at most is a clock wrong, ahead or behind."""
DISK_BYTES = 16 << 20
"""Size of the small disk of one host."""

Wait = Callable[[float], Awaitable[None]]
Fault = Callable[[], Awaitable[None]]
Trigger = Callable[[], Coroutine[Any, Any, None]]


class ProcessFaults:
    """Does faults to one cloud. All chances come from `dice`; `wait` passes the time of a fault."""

    def __init__(self, cloud: ProcessCloud, dice: random.Random, wait: Wait) -> None:
        self.cloud = cloud
        self.died: list[str] = []
        """Processes that ended although no fault did it, with the ends of their logs."""
        self._dice, self._wait = dice, wait
        self._filled: Path | None = None
        self.kinds: dict[str, Fault] = {
            **{f"kill {role}": partial(self.kill, role) for role in ROLES},
            **{f"pause {role}": partial(self.pause, role) for role in ROLES},
            # No step has its points in a scheduler: it commits nothing.
            **{f"point {role}": partial(self.reach_point, role) for role in ROLES if role != "scheduler"},
            **{f"clock {role}": partial(self.set_clock_wrong, role) for role in ROLES if role != "compute"},
            "nats restart": self.restart_nats,
            "nats pause": self.pause_nats,
            "postgresql restart": self.restart_postgresql,
            "postgresql pause": self.pause_postgresql,
            "postgresql read-only": self.refuse_commits,
            "postgresql disconnect": self.disconnect,
            "cell cut": self.cut_cell,
            "disk full": self.fill_disk,
        }

    async def do(self, kind: str) -> None:
        """Do one fault and undo it. Raises KeyError when there is no such kind."""
        self._see_alive()
        await self.kinds[kind]()

    async def heal(self) -> None:
        """See that everything runs and nothing is in its way."""
        cloud = self.cloud
        for link in (*cloud.to_nats.values(), *cloud.to_database.values()):
            link.heal()
        self._empty_disk()
        for child in cloud.children.values():
            child.resume()
            child.limit_files(None)
        self._see_alive()
        for child in cloud.children.values():
            await asyncio.to_thread(child.wait_started)

    async def kill(self, role: str) -> None:
        """End one process at once; another starts in its place after a while."""
        await self._killed(self._dice.choice(self.cloud.of(role)))

    async def pause(self, role: str) -> None:
        """Halt one process, most often for longer than its leases last."""
        child = self._dice.choice(self.cloud.of(role))
        child.pause()
        await self._wait(self._dice.uniform(*PAUSED_SECONDS))
        child.resume()

    async def reach_point(self, role: str) -> None:
        """Let the first process of a role that comes to a random point of a random step of its own end there."""
        actor = role.replace("-", "_")
        steps = [name for name, step in STEPS.items() if step.actor == actor]
        point = replace(self._dice.choice(points_of(self._dice.choice(steps))), nth=self._dice.randint(1, 4))
        await self.die_at(role, point)

    async def die_at(
        self, role: str, point: Point, *, seconds: float = POINT_SECONDS, trigger: Trigger | None = None
    ) -> bool:
        """Arm all processes of a role, wait for one that ends there, and start it again; whether one ended.

        `trigger` sets off what comes to the point, and has ended when this returns.
        """
        children = self.cloud.of(role)
        for child in children:
            await asyncio.to_thread(child.arm, point)
        triggered = asyncio.create_task(trigger()) if trigger is not None else None
        await asyncio.to_thread(_first_end, children, seconds)
        for child in children:
            await asyncio.to_thread(child.arm, NOWHERE)
        ended = [child for child in children if not child.running]
        for child in ended:
            await self._killed(child)
        if triggered is not None:
            await triggered
        return bool(ended)

    async def set_clock_wrong(self, role: str) -> None:
        """Start one process anew with a clock that is ahead of the others', or behind, for the rest of the run."""
        child = self._dice.choice(self.cloud.of(role))
        child.clock_offset = self._dice.randint(-WRONG_SECONDS, WRONG_SECONDS) * SECOND
        await self._killed(child)

    async def restart_nats(self) -> None:
        """End NATS; it starts again, on the same port, with what it stored."""
        await asyncio.to_thread(self.cloud.nats.kill)
        await self._wait(self._dice.uniform(*DOWN_SECONDS))
        await self.cloud.nats.start()

    async def pause_nats(self) -> None:
        """Halt NATS: connections stay, nothing comes through."""
        self.cloud.nats.pause()
        await self._wait(self._dice.uniform(*PAUSED_SECONDS))
        self.cloud.nats.resume()

    async def restart_postgresql(self) -> None:
        """End PostgreSQL with all its connections (SIGKILL); it recovers from its log."""
        await asyncio.to_thread(self.cloud.postgres.kill)
        await self._wait(self._dice.uniform(*DOWN_SECONDS))
        await asyncio.to_thread(self.cloud.postgres.start)

    async def pause_postgresql(self) -> None:
        """Halt PostgreSQL with all that it has in hand, locks too."""
        await asyncio.to_thread(self.cloud.postgres.pause)
        await self._wait(self._dice.uniform(*PAUSED_SECONDS))
        await asyncio.to_thread(self.cloud.postgres.resume)

    async def refuse_commits(self) -> None:
        """Let PostgreSQL store nothing, as a standby does; what is under way is committed."""
        await asyncio.to_thread(self._execute, "ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            await self._wait(self._dice.uniform(*DOWN_SECONDS))
        finally:
            await asyncio.to_thread(self._execute, "ALTER SYSTEM RESET default_transaction_read_only")

    async def disconnect(self) -> None:
        """End all connections in PostgreSQL, a few times: transactions fail wherever they are."""
        for _ in range(self._dice.randint(1, 4)):
            await asyncio.to_thread(self._terminate)
            await self._wait(self._dice.uniform(0.0, 0.5))

    async def cut_cell(self) -> None:
        """Split the network between one cell and everything else."""
        name = self._dice.choice(self.cloud.names)
        links = (self.cloud.to_nats[name], self.cloud.to_database[name])
        for link in links:
            link.cut()
        await self._wait(self._dice.uniform(*CUT_SECONDS))
        forgotten = self._dice.random() < 0.5
        for link in links:
            if forgotten:
                link.reset()
            link.heal()

    async def fill_disk(self) -> None:
        """Leave one host no room for its journal.

        It has a small disk of its own where we may mount one; else its process gets a limit on the size of files.
        """
        child = self._dice.choice(self.cloud.of("compute"))
        directory = self.cloud.host_directory(child)
        if await asyncio.to_thread(self._has_own_disk, child, directory):
            self._filled = directory / "ballast"
            with contextlib.suppress(OSError), self._filled.open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(4096))
        else:
            child.limit_files(4096)
        await self._wait(self._dice.uniform(*PAUSED_SECONDS))
        self._empty_disk()
        child.limit_files(None)

    def _has_own_disk(self, child: RoleChild, directory: Path) -> bool:
        """Give a host a disk of its own, the first time; whether it has one."""
        if directory.is_mount():
            return True
        child.kill()
        aside = directory.with_name(directory.name + ".aside")
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "skep-chaos", str(directory)]
        shutil.copytree(directory, aside)
        try:
            mounted = subprocess.run(command, capture_output=True, check=False)
            if mounted.returncode == 0:
                self.cloud.mounts.append(directory)
                shutil.copytree(aside, directory, dirs_exist_ok=True)
        finally:
            shutil.rmtree(aside)
        child.start()
        child.wait_started()
        return mounted.returncode == 0

    def _empty_disk(self) -> None:
        if self._filled is not None:
            self._filled.unlink(missing_ok=True)
            self._filled = None

    async def _killed(self, child: RoleChild) -> None:
        await asyncio.to_thread(child.kill)
        await self._wait(self._dice.uniform(*DOWN_SECONDS))
        child.start()

    def _see_alive(self) -> None:
        """Note who ended by himself, and start him again as a supervisor does."""
        for child in self.cloud.children.values():
            if not child.running:
                self.died.append(f"{child.order.name} ended with {child.status}:\n{child.tail()}")
                child.start()

    def _execute(self, statement: str) -> None:
        with self.cloud.postgres.connect() as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(statement.encode())
            connection.execute("SELECT pg_reload_conf()")

    def _terminate(self) -> None:
        with self.cloud.postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )


def _first_end(children: Sequence[RoleChild], seconds: float) -> None:
    """Wait until one of them has ended, but not for long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(child.running for child in children):
        time.sleep(0.02)
