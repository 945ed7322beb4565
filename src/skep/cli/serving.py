"""Runs a cloud, or a part of it, in this process until it is told to stop: signals, a greeting, a bounded drain."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import click

from skep.cli.failures import Failed

if TYPE_CHECKING:
    from skep.config import Config

DRAIN_SECONDS = 30.0
"""A stop that takes longer, where nothing else is configured, is given up."""


class Running(Protocol):
    """What is started and stopped: the whole cloud, or one role of it."""

    async def start(self) -> None:
        """Start all of it, or nothing."""

    async def stop(self) -> None:
        """Finish what is under way and stop."""


async def serve(cloud: Running, greet: Callable[[], Awaitable[None]], drain_seconds: float = DRAIN_SECONDS) -> None:
    """Start the cloud, greet, and serve until SIGINT or SIGTERM; a second signal ends the process at once.

    A stop that takes more than `drain_seconds` is given up: what was under way goes on at the next start all the same.

    Raises whatever starting or greeting raises, after the cloud has stopped; Failed when stopping takes too long.
    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        told.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        if await _unless(told, cloud.start()):
            try:
                if await _unless(told, greet()):
                    await told.wait()
            finally:
                await _drain(cloud, drain_seconds)
    finally:
        stop()


def trace(config: Config, role: str) -> None:
    """Let this process trace what it does, if `[tracing]` says where spans go. Raises Misconfigured when it cannot."""
    from skep.telemetry import tracing

    asked = config.tracing
    tracing.configure(role, endpoint=asked.endpoint, directory=asked.directory, sample_ratio=asked.sample_ratio)


async def nothing_to_say() -> None:
    """Greet nobody."""


async def _unless(told: asyncio.Event, work: Awaitable[None]) -> bool:
    """Do the work, or leave it when we are told to stop; say whether it was done."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.wait({task})
        return False
    finally:
        waiting.cancel()
        task.cancel()


async def _drain(cloud: Running, seconds: float) -> None:
    click.echo("Stopping: finishing what is under way ...", err=True)
    try:
        await asyncio.wait_for(cloud.stop(), seconds)
    except TimeoutError:
        raise Failed(f"stopping took more than {seconds:g} s and was given up") from None
    click.echo("Stopped. Everything is kept.", err=True)
