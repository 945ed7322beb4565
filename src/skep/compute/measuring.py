"""Measures guests now and then, for what watches the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from skep.compute.drivers.base import MeasuringDriver
from skep.compute.host import Host
from skep.domain.builds import BuildFailure
from skep.domain.ids import InstanceUuid
from skep.domain.measures import GuestMeasures

log = structlog.get_logger("skep.compute")

Told = Callable[[Mapping[InstanceUuid, GuestMeasures]], None]


async def measure(host: Host, told: Told) -> None:
    """Tell what the guests of a host take, as often as it reports, until cancelled. Nothing where that is not known."""
    driver = host.driver
    if not isinstance(driver, MeasuringDriver):
        return
    while True:
        host.work.check()
        found = await host.calls.read("question", driver.measures)
        if isinstance(found, BuildFailure):
            log.warning("guests not measured", host=host.name, error=found.message)
            found = {}
        told(found)
        await asyncio.sleep(host.settings.report_interval_seconds)
