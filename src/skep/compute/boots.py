"""What follows when the machine has booted: guests of ACTIVE servers run again, where the operator wants that.

Their rows say ACTIVE until a host tells otherwise, so an agent that finds the machine booted asks before it tells. A
server that was evacuated or deleted meanwhile is not this host's any more, and the answer is no.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import structlog

from skep.compute.drivers.base import PowerDriver
from skep.compute.host import Host
from skep.compute.whole_file import write_whole
from skep.domain.builds import BuildFailure
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState

log = structlog.get_logger("skep.compute")

BOOT = Path("/proc/sys/kernel/random/boot_id")
FILE = "boot"
"""Below the directory of the host: which boot of the machine its guests were looked after in."""
OFF = frozenset({PowerState.SHUTDOWN, PowerState.CRASHED})


def boot_id() -> str:
    """Return what names this boot of the machine; empty where the system does not tell."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


class Boots:
    """Notices that the machine has booted."""

    def __init__(self, host: Host, directory: Path) -> None:
        self._host = host
        self._path = directory / FILE
        self.looked_after = False
        """Whether nothing is left to do for this boot: until then no server may follow its guest."""

    async def resume(self, mine: Collection[tuple[InstanceUuid, int]]) -> None:
        """Start guests that are off and to run, of those that are `mine` to start, if the machine has booted.

        It is done again where the agent dies meanwhile, and has to be asked for again where guests could not be looked
        at. One that cannot be started stays off, and its server follows.
        """
        former, boot = self._former(), self._host.boot
        if boot and former != boot:
            if former and self._host.settings.resume_guests and not await self._start(mine):
                return
            try:
                write_whole(self._path, boot.encode())
            except OSError as error:
                log.warning("boot of the machine not noted", host=self._host.name, error=str(error))
        self.looked_after = True

    def _former(self) -> str:
        """Return the boot that was noted; empty: none, so no guest ran before."""
        try:
            return self._path.read_text().strip()
        except FileNotFoundError:
            return ""

    async def _start(self, mine: Collection[tuple[InstanceUuid, int]]) -> bool:
        """Start the guests; return whether they could be looked at."""
        host, driver = self._host, self._host.driver
        if not isinstance(driver, PowerDriver):
            reason = "the driver lacks the capability `power`"
            log.warning("no guest is started after a boot of the machine", host=host.name, error=reason)
            return True
        found = await host.calls.read("guests", driver.guests)
        if isinstance(found, BuildFailure):
            log.warning("guests not started yet after a boot of the machine", host=host.name, error=found.message)
            return False
        for guest in found:
            key = (guest.instance, guest.attempt)
            if not guest.whole or guest.power_state not in OFF or key not in mine:
                continue
            if not await host.upcalls.may_resume(*key):
                continue
            await start_again(host, driver, guest.instance)
        return True


async def start_again(host: Host, driver: PowerDriver, instance: InstanceUuid) -> PowerState | BuildFailure:
    """Start a guest that a boot of the machine has ended; return how it is, or why it cannot be started."""
    state = await host.calls.change("action", driver.power_on(instance), instance)
    error = state.message if isinstance(state, BuildFailure) else None
    log.info("guest started after a boot of the machine", host=host.name, instance=instance, error=error)
    return state
