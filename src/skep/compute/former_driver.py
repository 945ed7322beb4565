"""The driver that made what a host has: another one finds none of it, so it must not take the host over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from skep.compute.attempts import Attempts
from skep.compute.drivers.base import Guest
from skep.compute.identity import HostIdentity
from skep.domain.errors import Misconfigured

SHOWN = 3
"""Servers that the error names at most."""


def check(identity: HostIdentity, driver: str, attempts: Attempts, guests: Iterable[Guest], directory: Path) -> None:
    """Let a driver take over the host of another one only if it finds all that is left there.

    Raises Misconfigured otherwise. Where a name was not noted nothing is known, so the driver is let pass.
    """
    if not driver or identity.driver in ("", driver):
        return
    found = {(guest.instance, guest.attempt) for guest in guests}
    lost = sorted(
        {
            instance
            for instance, record in attempts.records.items()
            for attempt in (*record.open, *record.left_behind)
            if (instance, attempt) not in found
        }
    )
    if lost:
        named = ", ".join(lost[:SHOWN]) + (f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else "")
        raise Misconfigured(
            f'compute.driver: host {identity.host} has servers of the driver "{identity.driver}" in {directory}, and '
            f'"{driver}" does not find them: {named}. Set compute.driver = "{identity.driver}" and delete them first, '
            "or give this driver a directory of its own (state.directory)"
        )
