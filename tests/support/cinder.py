"""Skep's adapter of Cinder, over HTTP."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from skep.contracts.neighbours.served import SteppedClock
from skep.neighbours.answers import new_client
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.neighbours.volumes.cinder.of_users import ZoneRules
from skep.neighbours.volumes.cinder.service import ANYWHERE, CinderVolumes


@contextlib.asynccontextmanager
async def adapter(
    credentials: ServiceCredentials, clock: SteppedClock, url: str, rules: ZoneRules = ANYWHERE
) -> AsyncIterator[CinderVolumes]:
    """Speak to a Cinder for the length of a block."""
    async with new_client(ssl.create_default_context()) as client:
        yield CinderVolumes(ServiceSession(credentials, client, clock), url, rules)
