"""What an operator asks of a cloud that faults befall: again and again until it is done, but not for ever."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus

import httpx

from skep_lab.processes.cloud import ProcessCloud

PATIENCE_SECONDS = 30.0
"""How long an operator asks for one thing; long enough for a killed host to count as silent."""
ASK_AGAIN_SECONDS = 0.3
OPERATOR = "operator"
"""In the hands of what an operator does and takes back; a backup between the two would hold the first alone."""


async def asked_until_done(cloud: ProcessCloud, method: str, path: str, body: object = None) -> bool:
    """Send a request until its answer is no error; false when it is refused, or the cloud is away, for too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                answer = await asked(cloud, method, path, body)
                if answer is not None and answer.status_code < HTTPStatus.BAD_REQUEST:
                    return True
                await asyncio.sleep(ASK_AGAIN_SECONDS)
    return False


async def asked(cloud: ProcessCloud, method: str, path: str, body: object = None) -> httpx.Response | None:
    """Send a request once; None where no answer comes."""
    try:
        return await asyncio.to_thread(cloud.ask, method, path, body)
    except httpx.TransportError:
        return None
