"""Stopping the parts of a process one after the other, whatever state each is in."""

from __future__ import annotations

from collections.abc import Awaitable

from skep.telemetry.logs import get_logger

log = get_logger(__name__)


async def stop_part(part: str, stopping: Awaitable[None]) -> None:
    """Stop one part; one that cannot (its database is gone, say) must not keep the others from it."""
    try:
        await stopping
    except Exception:
        log.exception("part did not stop in good order", part=part)
