"""What can happen to a cloud of processes: each fault is done, lasts for a while, and is undone.

    faults = ProcessFaults(cloud, dice, wait)
    await faults.do("pause cell-conductor")

Whatever a fault breaks is whole again when it returns; `heal` sees to it when one was left in the midst. Several may be
under way at once: each takes into its hands what it befalls, a process, a server or a cell, and leaves alone what
another has.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from skep.domain.clock import SECOND
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from skep_lab.crash.points import ALL_STEPS, Point, drawn
from skep_lab.processes.child import NOWHERE, RoleChild
from skep_lab.processes.cloud import ProcessCloud, mount_memory

ROLES = ("api", "super-conductor", "scheduler", "cell-conductor", "compute")
TOGETHER = ((), ("nats",), ("postgresql",), ("nats", "postgresql"))
"""What ends with processes that end together."""
PASSED_BY = {"select": "super-conductor"}
"""Steps that one role does and another asks for, in whose process they are timed and their points stand."""
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
Fault = Callable[[], Awaitable[bool]]
"""Whether it befell anything; not where all that it could befall is in other hands."""
Trigger = Callable[[], Coroutine[Any, Any, None]]


def _unheard(_server: str) -> None:
    """Take no notice of a server."""


def role_of(step: str) -> str:
    """Return the role whose processes pass the crash points of a step. Raises KeyError when there is no such step."""
    return PASSED_BY.get(step) or ALL_STEPS[step].actor.replace("_", "-")


def steps_of(role: str) -> list[str]:
    """Return the steps whose crash points the processes of a role pass."""
    return [step for step in ALL_STEPS if role_of(step) == role]


class ProcessFaults:
    """Does faults to one cloud. All chances come from `dice`; `wait` passes the time of a fault."""

    def __init__(
        self, cloud: ProcessCloud, dice: random.Random, wait: Wait, given_up: Callable[[str], None] = _unheard
    ) -> None:
        """`given_up` is told of each server that a story deletes."""
        self.cloud = cloud
        self.given_up = given_up
        self.died: list[str] = []
        """Processes that ended although no fault did it, with the ends of their logs."""
        self.evacuated = 0
        """Evacuations that were promised."""
        self.dice, self.wait = dice, wait
        self._in_hand: set[str] = set()
        self._reserved: set[str] = set()
        """No fault takes these: one waits until all of them are free."""
        self._filled: Path | None = None
        self.kinds: dict[str, Fault] = {
            **{f"kill {role}": partial(self.kill, role) for role in ROLES},
            **{f"pause {role}": partial(self.pause, role) for role in ROLES},
            # No step has its points in a scheduler: whoever asks it passes them.
            **{f"point {role}": partial(self.reach_point, role) for role in ROLES if steps_of(role)},
            **{f"clock {role}": partial(self.set_clock_wrong, role) for role in ROLES},
            "kill together": self.kill_together,
            "nats restart": partial(self.befall, "nats", self._restart_nats),
            "nats pause": partial(self.befall, "nats", self._pause_nats),
            "postgresql restart": partial(self.befall, "postgresql", self._restart_postgresql),
            "postgresql pause": partial(self.befall, "postgresql", self._pause_postgresql),
            "postgresql read-only": partial(self.befall, "postgresql", self._refuse_commits),
            "postgresql disconnect": partial(self.befall, "postgresql", self._disconnect),
            "cell cut": self.cut_cell,
            "disk full": self.fill_disk,
        }

    async def do(self, kind: str) -> bool:
        """Do one fault and undo it; false when there was nothing free to befall. Raises KeyError for no such kind."""
        self._see_alive()
        return await self.kinds[kind]()

    @contextlib.contextmanager
    def taking(self, names: Sequence[str]) -> Iterator[str | None]:
        """Take one of these into the hands of a fault; None when others have all of them."""
        free = [name for name in names if name not in self._in_hand and name not in self._reserved]
        taken = self.dice.choice(free) if free else None
        with self.holding([taken] if taken else []):
            yield taken

    @contextlib.contextmanager
    def taking_process(self, role: str) -> Iterator[RoleChild | None]:
        """Take a process of a role; None when all are in other hands."""
        with self.taking([child.order.name for child in self.cloud.of(role)]) as name:
            yield self.cloud.children[name] if name is not None else None

    def are_free(self, names: Sequence[str]) -> bool:
        """Tell whether none of these is in the hands of a fault."""
        return self._in_hand.isdisjoint(names)

    @contextlib.contextmanager
    def reserving(self, names: Sequence[str]) -> Iterator[None]:
        """Have no more faults take these until the block ends; who has one keeps it."""
        self._reserved.update(names)
        try:
            yield
        finally:
            self._reserved.difference_update(names)

    @contextlib.contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[None]:
        """Keep other faults from these until the block ends."""
        self._in_hand.update(names)
        try:
            yield
        finally:
            self._in_hand.difference_update(names)

    async def heal(self) -> None:
        """See that everything runs and nothing is in its way."""
        cloud = self.cloud
        for link in (*cloud.to_nats.values(), *cloud.to_database.values()):
            link.heal()
        self._empty_disk()
        for child in cloud.children.values():
            child.resume()
            child.limit_files(None)
        if not cloud.postgres.running:
            await asyncio.to_thread(cloud.postgres.start)
        self._see_alive()
        for child in cloud.children.values():
            await asyncio.to_thread(child.wait_started)

    async def kill(self, role: str) -> bool:
        """End one process at once; another starts in its place after a while."""
        with self.taking_process(role) as child:
            if child is None:
                return False
            await self.killed(child)
        return True

    async def kill_together(self) -> bool:
        """End processes of several roles at one moment, and NATS, PostgreSQL, both or none of them with them."""
        servers = self.dice.choice(TOGETHER)
        with contextlib.ExitStack() as hands:
            found = [
                hands.enter_context(self.taking_process(role)) for role in self.dice.sample(ROLES, len(ROLES) // 2 + 1)
            ]
            children = [child for child in found if child is not None]
            # What another fault has stays out of it.
            taken = [hands.enter_context(self.taking([name])) for name in servers]
            ended = [*children, *(self._server(name) for name in taken if name is not None)]
            await asyncio.gather(*(asyncio.to_thread(one.kill) for one in ended))
            await self.wait(self.dice.uniform(*DOWN_SECONDS))
            for child in children:
                child.start()
            if "postgresql" in taken:
                await asyncio.to_thread(self.cloud.postgres.start)
            if "nats" in taken:
                await self.cloud.nats.start()
        return len(ended) > 1

    def _server(self, name: str) -> NatsServer | PostgresServer:
        return self.cloud.nats if name == "nats" else self.cloud.postgres

    async def pause(self, role: str) -> bool:
        """Halt one process, most often for longer than its leases last."""
        with self.taking_process(role) as child:
            if child is None:
                return False
            child.pause()
            await self.wait(self.dice.uniform(*PAUSED_SECONDS))
            child.resume()
        return True

    async def reach_point(self, role: str) -> bool:
        """Let the first process of a role that comes to a random point of a random step of its own end there."""
        return await self.die_at(role, drawn(self.dice, steps_of(role)))

    async def die_at(
        self, role: str, point: Point, *, seconds: float = POINT_SECONDS, trigger: Trigger | None = None
    ) -> bool:
        """Arm all processes of a role, wait for one that ends there, and start it again; whether one ended.

        `trigger` sets off what comes to the point, and has ended when this returns.
        """
        children = [child for child in self.cloud.of(role) if child.order.name not in self._in_hand]
        with self.holding([child.order.name for child in children]):
            return await self._die_at(children, point, seconds, trigger)

    async def _die_at(
        self, children: Sequence[RoleChild], point: Point, seconds: float, trigger: Trigger | None
    ) -> bool:
        for child in children:
            await asyncio.to_thread(child.arm, point)
        triggered = asyncio.create_task(trigger()) if trigger is not None else None
        await asyncio.to_thread(_first_end, children, seconds)
        for child in children:
            await asyncio.to_thread(child.arm, NOWHERE)
        ended = [child for child in children if not child.running]
        for child in ended:
            await self.killed(child)
        if triggered is not None:
            await triggered
        return bool(ended)

    async def set_clock_wrong(self, role: str) -> bool:
        """Start one process anew with a clock that is ahead of the others', or behind, for the rest of the run."""
        with self.taking_process(role) as child:
            if child is None:
                return False
            child.clock_offset = self.dice.randint(-WRONG_SECONDS, WRONG_SECONDS) * SECOND
            await asyncio.to_thread(child.kill)
            self.note_clock(child, child.clock_offset)
            await self.killed(child)
        return True

    def note_clock(self, child: RoleChild, ahead: int) -> None:
        """Have the time of a host that does not run now told right; `ahead`: of its clock, microseconds."""
        if child.order.role == "compute":
            self.cloud.host_clocks.set(self.cloud.host_directory(child), ahead)

    async def befall(self, server: str, fault: Callable[[], Awaitable[None]]) -> bool:
        """Do something to a server unless another fault has it in its hands."""
        with self.taking([server]) as taken:
            if taken is not None:
                await fault()
        return taken is not None

    async def _restart_nats(self) -> None:
        """End NATS; it starts again, on the same port, with what it stored."""
        await asyncio.to_thread(self.cloud.nats.kill)
        await self.wait(self.dice.uniform(*DOWN_SECONDS))
        await self.cloud.nats.start()

    async def _pause_nats(self) -> None:
        """Halt NATS: connections stay, nothing comes through."""
        self.cloud.nats.pause()
        await self.wait(self.dice.uniform(*PAUSED_SECONDS))
        self.cloud.nats.resume()

    async def _restart_postgresql(self) -> None:
        """End PostgreSQL with all its connections (SIGKILL); it recovers from its log."""
        await asyncio.to_thread(self.cloud.postgres.kill)
        await self.wait(self.dice.uniform(*DOWN_SECONDS))
        await asyncio.to_thread(self.cloud.postgres.start)

    async def _pause_postgresql(self) -> None:
        """Halt PostgreSQL with all that it has in hand, locks too."""
        await asyncio.to_thread(self.cloud.postgres.pause)
        await self.wait(self.dice.uniform(*PAUSED_SECONDS))
        await asyncio.to_thread(self.cloud.postgres.resume)

    async def _refuse_commits(self) -> None:
        """Let PostgreSQL store nothing, as a standby does; what is under way is committed."""
        await asyncio.to_thread(self._execute, "ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            await self.wait(self.dice.uniform(*DOWN_SECONDS))
        finally:
            await asyncio.to_thread(self._execute, "ALTER SYSTEM RESET default_transaction_read_only")

    async def _disconnect(self) -> None:
        """End all connections in PostgreSQL, a few times: transactions fail wherever they are."""
        for _ in range(self.dice.randint(1, 4)):
            await asyncio.to_thread(self._terminate)
            await self.wait(self.dice.uniform(0.0, 0.5))

    async def cut_cell(self) -> bool:
        """Split the network between one cell and everything else."""
        with self.taking(self.cloud.names) as name:
            if name is not None:
                await self._cut(name)
        return name is not None

    async def _cut(self, name: str) -> None:
        links = (self.cloud.to_nats[name], self.cloud.to_database[name])
        for link in links:
            link.cut()
        await self.wait(self.dice.uniform(*CUT_SECONDS))
        forgotten = self.dice.random() < 0.5
        for link in links:
            if forgotten:
                link.reset()
            link.heal()

    async def fill_disk(self) -> bool:
        """Leave one host no room for its journal.

        It has a small disk of its own where we may mount one; else its process gets a limit on the size of files.
        """
        with self.taking(["a full disk"]) as free, self.taking_process("compute") as child:
            if free is None or child is None:
                return False
            await self._fill_disk_of(child)
        return True

    async def _fill_disk_of(self, child: RoleChild) -> None:
        directory = self.cloud.host_directory(child)
        if await asyncio.to_thread(self._has_own_disk, child, directory):
            self._filled = directory / "ballast"
            with contextlib.suppress(OSError), self._filled.open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(4096))
        else:
            child.limit_files(4096)
        await self.wait(self.dice.uniform(*PAUSED_SECONDS))
        self._empty_disk()
        child.limit_files(None)

    def _has_own_disk(self, child: RoleChild, directory: Path) -> bool:
        """Give a host a disk of its own, the first time; whether it has one."""
        if directory.is_mount():
            return True
        child.kill()
        aside = directory.with_name(directory.name + ".aside")
        shutil.copytree(directory, aside)
        try:
            mounted = mount_memory(directory, DISK_BYTES)
            if mounted:
                self.cloud.mounts.append(directory)
                shutil.copytree(aside, directory, dirs_exist_ok=True)
        finally:
            shutil.rmtree(aside)
        child.start()
        child.wait_started()
        return mounted

    def _empty_disk(self) -> None:
        if self._filled is not None:
            self._filled.unlink(missing_ok=True)
            self._filled = None

    async def killed(self, child: RoleChild) -> None:
        """End a process and start it again after a while."""
        await asyncio.to_thread(child.kill)
        await self.wait(self.dice.uniform(*DOWN_SECONDS))
        child.start()

    def _see_alive(self) -> None:
        """Note who ended by himself, and start him again as a supervisor does."""
        for child in self.cloud.children.values():
            if not child.running and child.order.name not in self._in_hand:
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
