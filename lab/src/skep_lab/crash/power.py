"""What a loss of power does to a fake host."""

from __future__ import annotations

from pathlib import Path

from skep.compute.drivers.fake import GUESTS_FILE
from skep.compute.drivers.guest_log import GuestEvent, GuestLog
from skep.domain.clock import Clock


def cut_power(home: Path, ahead: int = 0) -> None:
    """Have no guest run on the host of a directory, whose agent has ended; one that was being made is not there.

    The host's clock is ahead by so many microseconds. Raises OSError where its disk is full.
    """
    log, clock = GuestLog(home / GUESTS_FILE), Clock()
    try:
        for guest in tuple(log.guests.values()):
            event = GuestEvent(
                at=clock.now() + ahead,
                event="powered_off" if guest.whole else "destroyed",
                instance=guest.instance,
                attempt=guest.attempt,
                hard=True,
            )
            log.write(event)
    finally:
        log.close()
