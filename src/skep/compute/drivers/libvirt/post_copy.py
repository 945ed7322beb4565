"""Post-copy: the end of a live migration in which the guest goes on on the target, and what of its memory is missing
there follows. Until all of it has, the guest is in two halves, and needs both hosts: there is no way back."""

from __future__ import annotations

import libvirt

HALVES = (libvirt.VIR_DOMAIN_PAUSED_POSTCOPY, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)
STOPPED = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATION_CANCELED),
)
"""Of guests that were stopped since all was copied: they still are where QEMU does not get their disks back."""
SUSPENDED = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)
RESUMED = libvirt.VIR_MIGRATE_POSTCOPY | libvirt.VIR_MIGRATE_POSTCOPY_RESUME


def is_halved(domain: libvirt.virDomain) -> bool:
    """Tell whether a guest goes on on the target and needs what is here. Raises libvirt.libvirtError."""
    state, reason = domain.state()
    return state == libvirt.VIR_DOMAIN_PAUSED and reason in HALVES


def is_parted(domain: libvirt.virDomain) -> bool:
    """Tell whether the halves of a guest have lost each other: to libvirt their job goes on, for ever.

    Raises libvirt.libvirtError.
    """
    state, reason = domain.state()
    return (state, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)


def was_stopped(domain: libvirt.virDomain) -> bool:
    """Tell whether a guest that is here was stopped for the target by its last migration. Raises libvirtError."""
    state, reason = domain.state()
    return (state, reason) in STOPPED


def is_suspended(domain: libvirt.virDomain) -> bool:
    """Tell whether a guest was paused by a call, and not by QEMU or a migration. Raises libvirtError."""
    state, reason = domain.state()
    return (state, reason) == SUSPENDED


def begin(domain: libvirt.virDomain) -> None:
    """Have a guest go on on the target; one whose migration is not that far, or over, stays. Raises libvirtError."""
    try:
        domain.migrateStartPostCopy(0)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            raise
