"""Faults of a cloud of processes that are whole stories: lost state, disks, clocks, what operators do meanwhile.

    faults.kinds |= stories(faults)

Each ends with everything as it was. What a machine cannot have is left out, and said so.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from skep.domain.clock import SECOND
from skep.processes.servers.programs import find_program
from skep_lab.processes.child import RoleChild, RoleDied
from skep_lab.processes.deletions import deletions
from skep_lab.processes.faults import DOWN_SECONDS, PAUSED_SECONDS, Fault, ProcessFaults
from skep_lab.processes.operator import OPERATOR, asked_until_done

AHEAD_SECONDS = {"super-conductor": 3600, "scheduler": 3600, "cell-conductor": 3600, "compute": 3600, "api": 1200}
"""By so much at most the clock of a program of each role is wrong. Tokens live for an hour, and an API judges them."""
DATABASES_DISK_BYTES = 512 << 20
LONG_FULL_SECONDS = (1.0, 6.0)
BALLAST_PIECE = 1 << 20


def stories(faults: ProcessFaults) -> dict[str, Fault]:
    """Return the stories that this machine can have, by name; on standard error it says which it cannot."""
    cloud = faults.cloud
    found: dict[str, Fault] = {
        "nats lost": partial(faults.befall, "nats", partial(lose_bus, faults)),
        "host fenced": partial(fence, faults),
        **deletions(faults),
        "databases' disk full": partial(faults.befall, "postgresql", partial(fill_databases_disk, faults)),
    }
    faked = faked_time()
    found |= {f"faketime {role}": partial(fake_time, faults, role, faked) for role in AHEAD_SECONDS}
    if not faked:
        _say("no clock of a program is wrong: the package faketime is not installed")
        found = {name: story for name, story in found.items() if not name.startswith("faketime")}
    if cloud.databases_disk is None:
        _say("no disk fills under the databases: we may not mount one (that takes root)")
        del found["databases' disk full"]
    return found


async def lose_bus(faults: ProcessFaults) -> None:
    """End NATS and remove all that it stored: host states, and messages on their way."""
    nats = faults.cloud.nats
    await asyncio.to_thread(nats.kill)
    await asyncio.to_thread(nats.wipe)
    await faults.wait(faults.dice.uniform(*DOWN_SECONDS))
    await nats.start()


async def fill_databases_disk(faults: ProcessFaults) -> None:
    """Leave PostgreSQL no room: statements fail, or its log cannot grow and it ends; later it starts on what it has."""
    postgres, disk = faults.cloud.postgres, faults.cloud.databases_disk
    assert disk is not None
    ballast = disk / "ballast"
    try:
        await asyncio.to_thread(_fill, ballast)
        await faults.wait(faults.dice.uniform(*LONG_FULL_SECONDS))
    finally:
        ballast.unlink(missing_ok=True)
        if not postgres.running:
            await asyncio.to_thread(postgres.kill)
            await asyncio.to_thread(postgres.start)


async def fake_time(faults: ProcessFaults, role: str, faked: Mapping[str, str]) -> bool:
    """Let a program whose clock is wrong do the work of a process; then it dies with all that it holds.

    A program that still waits to start has not died: another fault may have what it needs, a database for example.
    """
    with faults.taking_process(role) as child:
        if child is None:
            return False
        seconds = faults.dice.randint(-AHEAD_SECONDS[role], AHEAD_SECONDS[role])
        program = faults.cloud.program(child, {**faked, "FAKETIME": f"{seconds:+d}s"}, "faketime")
        await asyncio.to_thread(child.kill)
        faults.note_clock(child, seconds * SECOND)
        program.start()
        try:
            await asyncio.to_thread(program.wait_started)
            await faults.wait(faults.dice.uniform(*PAUSED_SECONDS))
        except RoleDied as error:
            if program.running:
                _say(f"{child.order.name} with a wrong clock waits to start")
            else:
                faults.died.append(str(error))
        finally:
            await asyncio.to_thread(program.kill)
            faults.note_clock(child, child.clock_offset)
            child.start()
    return True


async def fence(faults: ProcessFaults) -> bool:
    """Have an operator fence a host that died while servers are built and deleted there, and take it back in time."""
    with faults.taking([OPERATOR]) as free, faults.taking_process("compute") as child:
        if free is None or child is None:
            return False
        host = child.order.name.removeprefix("compute-")
        await asyncio.to_thread(child.kill)
        await asked_until_done(faults.cloud, "PATCH", f"/admin/v1/hosts/{host}", {"forced_down": True})
        fenced = await asked_until_done(faults.cloud, "POST", f"/admin/v1/hosts/{host}/fence")
        await faults.wait(faults.dice.uniform(*DOWN_SECONDS))
        if fenced:
            await asked_until_done(faults.cloud, "DELETE", f"/admin/v1/hosts/{host}/fence")
        await _see_up(faults, child, host)
    return True


async def _see_up(faults: ProcessFaults, child: RoleChild, host: str) -> None:
    child.start()
    while not await asked_until_done(faults.cloud, "PATCH", f"/admin/v1/hosts/{host}", {"forced_down": False}):
        _say(f"{host} is still forced down")


def faked_time() -> dict[str, str]:
    """Return the variables that put libfaketime before a program; none where the package is absent.

    Only the time of day is faked: what waits, waits as long as it should.
    """
    program = find_program("faketime")
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")) if program is not None else []
    if not found:
        return {}
    return {"LD_PRELOAD": str(found[0]), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}


def _fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (BALLAST_PIECE, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
