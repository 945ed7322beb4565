"""The story of ports that are made anew: of builds whose last host keeps the interfaces that it made."""

from __future__ import annotations

from functools import partial

import msgspec

from skep.database.api import instance_mappings as mappings
from skep.database.cell import interfaces, renewals
from skep.database.cell.builds import Work
from skep.database.cell.instances import UNBOUND
from skep.database.cell.renewals import Renewal
from skep.domain.errors import SkepError, Unavailable
from skep.domain.instances import Fault
from skep.domain.vifs import Vif
from skep.neighbours.at_once import at_once
from skep.neighbours.networks.base import PortsAwaited, PortsRefused, WantedPorts
from skep.super_conductor import notifications
from skep.super_conductor.alone import alone
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


class _TakenBuild:
    """A build whose ports this process makes anew."""

    def __init__(self, access: CellAccess, renewal: Renewal) -> None:
        self._access = access
        self.renewal = renewal

    async def again(self, now: int) -> bool:
        """Take it anew."""
        is_mine = await self._access.write(partial(renewals.take_again, mine=self.renewal, now=now))
        if is_mine:
            self.renewal = msgspec.structs.replace(self.renewal, taken_at=now)
        return is_mine

    async def leave(self) -> None:
        """Let any process make them."""
        await self._access.write(partial(renewals.leave, mine=self.renewal))


async def _renewed(parts: Parts, access: CellAccess, work: Work, attempt: int) -> bool:
    """Make the ports of one build anew; False where that is to be tried again, or it has gone on."""
    server = work.instance
    mine = Renewal(instance=server.uuid, attempt=server.attempt, taken_at=parts.clock.now())
    try:
        if not await access.write(partial(renewals.take, mine=mine, seconds=parts.settings.lease_seconds)):
            return False
        taken = _TakenBuild(access, mine)
        found = await alone(parts, taken, _made(parts, work, attempt))
        if found is not None and await _written(parts, access, work, taken.renewal, found):
            return not isinstance(found, PortsRefused)
        # Another process has made them, and they may have been bound since.
        await access.write(partial(interfaces.doubt_bindings, uuids=[server.uuid]))
    except SkepError as error:
        log.warning("ports not made anew yet", instance=server.uuid, error=str(error))
    return False


async def _made(parts: Parts, work: Work, attempt: int) -> tuple[Vif, ...] | PortsRefused | None:
    """Make the ports of a build anew; None where it has gone on. Raises Unavailable."""
    found = await parts.networks.renew(_wanted(work, attempt), [vif.id for vif in work.instance.vifs])
    if isinstance(found, PortsAwaited):
        raise Unavailable(found.message)
    return found


async def _written(
    parts: Parts, access: CellAccess, work: Work, mine: Renewal, found: tuple[Vif, ...] | PortsRefused
) -> bool:
    """Write what became of the ports of a build; False where another process has made them."""
    now = parts.clock.now()
    if not isinstance(found, PortsRefused):
        is_written = await access.write(partial(renewals.renewed, mine=mine, vifs=found, now=now))
        if is_written:
            log.info("ports made anew", instance=mine.instance, attempt=mine.attempt)
        return is_written
    fault = Fault(code=500, message=f"{NO_PORTS} {found.message}", created_at=now)
    is_over = await access.write(partial(renewals.refused, mine=mine, fault=fault, now=now))
    if is_over:
        notifications.stays(parts.notifier, work, fault)
    return is_over


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
