"""What builds and deletes of guests take of the CPU, apart from what the cloud takes while nothing happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from skep.cli.benchmarks import process_tree
from skep.cli.benchmarks.process import CloudProcess

AGENTS = "compute"
"""The role whose programs (`qemu-img`, what starts QEMU) are told apart."""
PAUSE_SECONDS = 1.0
"""Before what is counted begins: what was done before has ended."""


class GuestCosts(msgspec.Struct, frozen=True, kw_only=True):
    """CPU in milliseconds, by role and server; `programs` are those that the agent started and waited for."""

    idle_ms: dict[str, float]
    """Of a second in which nothing happens."""
    build_ms: dict[str, float]
    """Of a build, less what an idle cloud takes in the same time."""
    delete_ms: dict[str, float]
    """Of a delete, less the same."""
    servers: tuple[str, ...]
    """That were built."""
    qemu_ms: float
    """Of the QEMU of one guest, until the last of them was ACTIVE. It is in none of the others."""


async def measure(
    cloud: CloudProcess,
    *,
    guests: int,
    idle_seconds: float,
    build: Callable[[], Awaitable[str]],
    delete: Callable[[str], Awaitable[None]],
) -> GuestCosts:
    """Do nothing for a time, build guests one after the other, then delete them; `build` returns a server's id."""
    idle, _ = await _spent(cloud, lambda: asyncio.sleep(idle_seconds))
    servers: list[str] = []

    async def build_all() -> None:
        servers.extend([await build() for _ in range(guests)])

    async def delete_all() -> None:
        for server in servers:
            await delete(server)

    rate = {kind: seconds / idle_seconds for kind, seconds in idle.items()}
    building = _above(rate, await _spent(cloud, build_all))
    qemu = process_tree.cpu_of_naming(frozenset(servers))
    deleting = _above(rate, await _spent(cloud, delete_all))
    return GuestCosts(
        idle_ms=_in_ms(rate),
        build_ms=_in_ms(building, guests),
        delete_ms=_in_ms(deleting, guests),
        servers=tuple(servers),
        qemu_ms=round(qemu * 1000 / guests, 1),
    )


async def _spent(cloud: CloudProcess, work: Callable[[], Awaitable[None]]) -> tuple[dict[str, float], float]:
    """Return the CPU seconds that pass while something is done, by kind, and how long it took."""
    await asyncio.sleep(PAUSE_SECONDS)
    before, began = cloud.cpu_by_kind(AGENTS), time.monotonic()
    await work()
    after, ended = cloud.cpu_by_kind(AGENTS), time.monotonic()
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}, ended - began


def _above(rate: dict[str, float], spent: tuple[dict[str, float], float]) -> dict[str, float]:
    by_kind, seconds = spent
    return {kind: one - rate.get(kind, 0.0) * seconds for kind, one in by_kind.items()}


def _in_ms(seconds: dict[str, float], share: int = 1) -> dict[str, float]:
    return {kind: round(one * 1000 / share, 1) for kind, one in sorted(seconds.items())}
