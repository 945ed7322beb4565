"""What is asked of the QEMU guest agent inside a guest. Each answer has a deadline: the guest may say anything, or
nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.domain import GuestLabel
from skep.domain.instances import PowerState

log = logging.getLogger(__name__)

SECONDS = 20
"""In which an agent answers."""
SILENT = "GuestAgentUnavailable"
"""Name of the error where an agent does not answer, or refuses."""
ABSENT = "InstanceAgentNotEnabled"
"""Name of the error where a guest has none (Nova's)."""
FROZEN = ".frozen"
"""Beside the disks of a guest: there from before its file systems are to stand still until they go on."""


def set_password(domain: libvirt.virDomain, user: str, password: str) -> None:
    """Change the password of a user of a guest that runs. Raises DriverError; the password is in no message."""
    if "\0" in user or "\0" in password:
        raise DriverError(SILENT, "the guest agent does not do it: no name of a user and no password has a NUL")
    try:
        domain.agentSetResponseTimeout(SECONDS)
        domain.setUserPassword(user, password)
    except libvirt.libvirtError as error:
        raise _refused(error) from None


@contextmanager
def frozen(domain: libvirt.virDomain, place: Path, *, required: bool) -> Iterator[None]:
    """Have the file systems of a guest, whose files are in `place`, written out and still meanwhile.

    Raises DriverError where that is required and the agent does not do it; else its disk is as after a loss of power.
    Raises OSError where it cannot be noted for the next agent.
    """
    (place / FROZEN).touch(mode=0o600)
    try:
        domain.agentSetResponseTimeout(SECONDS)
        domain.fsFreeze()
    except libvirt.libvirtError as error:
        _thaw(domain, place)
        if required:
            raise _refused(error) from error
        log.info("file systems of %s are not frozen: %s", domain.UUIDString(), error)
        yield
        return
    try:
        yield
    finally:
        _thaw(domain, place)


def still(domain: libvirt.virDomain, label: GuestLabel, state: PowerState, place: Path) -> AbstractContextManager[None]:
    """Return what keeps the file systems of a guest still, as far as it has an agent and runs. Raises DriverError."""
    if label.administrator and state is PowerState.RUNNING:
        return frozen(domain, place, required=label.quiesce)
    if label.quiesce and not label.administrator:
        raise DriverError(ABSENT, "os_require_quiesce: the image has no hw_qemu_guest_agent that could do it")
    return nullcontext()


def thaw_left(domain: libvirt.virDomain, place: Path) -> None:
    """Let file systems go on that an agent which died has left standing still, if it has. Raises libvirt.libvirtError,
    OSError."""
    if not (place / FROZEN).exists():
        return
    if not domain.isActive():
        (place / FROZEN).unlink()
        return
    log.warning("file systems of %s were left frozen, and are to go on", domain.UUIDString())
    domain.agentSetResponseTimeout(SECONDS)
    _thaw(domain, place)


def _thaw(domain: libvirt.virDomain, place: Path) -> None:
    """Let the file systems go on; also after a freeze that was not answered, which may have been done all the same."""
    try:
        domain.fsThaw()
    except libvirt.libvirtError as error:
        log.warning("file systems of %s may still be frozen: %s", domain.UUIDString(), error)
        return
    (place / FROZEN).unlink(missing_ok=True)


def _refused(error: libvirt.libvirtError) -> DriverError:
    return DriverError(SILENT, f"the guest agent does not do it: {error}")
