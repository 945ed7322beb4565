"""Skep's adapter of Cinder, over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from skep.contracts.neighbours.served import SteppedClock
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.neighbours.volumes.cinder.of_users import ZoneRules
from skep.neighbours.volumes.cinder.service import ANYWHERE, CinderVolumes
from tests.support.service_clients import unencrypted_client


@contextlib.asynccontextmanager
async def adapter(
    credentials: ServiceCredentials, clock: SteppedClock, url: str, rules: ZoneRules = ANYWHERE
) -> AsyncIterator[CinderVolumes]:
    """Speak to a Cinder for the length of a block."""
    async with unencrypted_client() as client:
        yield CinderVolumes(ServiceSession(credentials, client, clock), url, rules)
