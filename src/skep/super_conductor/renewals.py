"""The story of ports that are made anew: of builds whose last host keeps the interfaces that it made."""

from __future__ import annotations

from functools import partial

from skep.database.api import instance_mappings as mappings
from skep.database.cell import interfaces, renewals, reschedules
from skep.database.cell.builds import Work
from skep.database.cell.instances import UNBOUND
from skep.domain.errors import SkepError
from skep.domain.instances import Fault
from skep.neighbours.at_once import at_once
from skep.neighbours.networks.base import PortsAwaited, PortsRefused, WantedPorts
from skep.super_conductor import notifications
from skep.super_conductor.builds import NO_PORTS
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 200


async def renew(parts: Parts, access: CellAccess) -> None:
    """Make the ports anew of builds of a cell that wait for that; then their next hosts are chosen."""
    waiting = await access.write(partial(renewals.waiting, now=parts.clock.now(), limit=BATCH))
    known = await parts.api.read(partial(mappings.get_many, instances=[one.instance.uuid for one in waiting]))
    here = [
        (one, mapping.attempt)
        for one in waiting
        if (mapping := known.get(one.instance.uuid)) is not None and mapping.cell == access.cell.uuid
    ]
    if any(await at_once(_renewed(parts, access, work, attempt) for work, attempt in here)):
        await parts.nudge(access.cell.uuid)


async def _renewed(parts: Parts, access: CellAccess, work: Work, attempt: int) -> bool:
    """Make the ports of one build anew; False where that is to be tried again, or it has gone on."""
    uuid, number = work.instance.uuid, work.instance.attempt
    try:
        found = await parts.networks.renew(_wanted(work, attempt), [vif.id for vif in work.instance.vifs])
    except SkepError as error:
        log.warning("ports not made anew yet", instance=uuid, error=str(error))
        return False
    if found is None or isinstance(found, PortsAwaited):
        return False
    now = parts.clock.now()
    if isinstance(found, PortsRefused):
        fault = Fault(code=500, message=f"{NO_PORTS} {found.message}", created_at=now)
        if await access.write(partial(reschedules.exhausted, uuid=uuid, attempt=number, fault=fault, now=now)):
            notifications.stays(parts.notifier, work, fault)
        return False
    if await access.write(partial(renewals.renewed, uuid=uuid, attempt=number, vifs=found, now=now)):
        log.info("ports made anew", instance=uuid, attempt=number)
        return True
    # Another conductor has made them, and they may have been bound since.
    await access.write(partial(interfaces.doubt_bindings, uuids=[uuid]))
    return False


def _wanted(work: Work, attempt: int) -> WantedPorts:
    """Return the interfaces that a build is to have, bound to no host, for its next one is not chosen."""
    asked = work.instance
    return WantedPorts(
        instance=asked.uuid,
        attempt=attempt,
        project_id=asked.project_id,
        is_admin=work.context.is_admin,
        host=UNBOUND,
        zone=asked.availability_zone or "",
        networks=asked.networks,
        named=asked.requested_networks,
        security_groups=asked.security_groups,
    )
