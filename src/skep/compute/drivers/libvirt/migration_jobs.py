"""What libvirt says of a migration, how it comes to nothing, and how its guest goes on where it came."""

from __future__ import annotations

from typing import Any

import libvirt
import msgspec

from skep.compute.drivers.libvirt.post_copy import is_halved, is_parted
from skep.domain.server_migrations import CopyFigures

PARTS = ("total", "processed", "remaining")


def job_of(
    domain: libvirt.virDomain, operation: int = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
) -> dict[str, Any]:
    """Return what libvirt says of the migration of a domain, or of another job, that is under way; nothing: there is
    none."""
    try:
        stats: dict[str, Any] = domain.jobStats()
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
            return {}
        raise
    is_it = stats.get("operation") == operation
    return stats if is_it and stats.get("type") != libvirt.VIR_DOMAIN_JOB_NONE else {}


def seen_of(domain: libvirt.virDomain) -> tuple[dict[str, Any], bool]:
    """Return the migration of a domain, and whether its guest is in halves: of one that has left meanwhile nothing."""
    try:
        return job_of(domain), is_halved(domain)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return {}, False
        raise


def is_leaving(domain: libvirt.virDomain) -> bool:
    """Tell whether the migration of a domain is under way, and will end by itself."""
    try:
        return bool(job_of(domain)) and not is_parted(domain)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return False
        raise


def figures_of(job: dict[str, Any], before: CopyFigures | None, *, halved: bool) -> CopyFigures:
    """Return how far a migration is; of what it has not begun with it says nothing, so that stays as it was."""
    kept = dict(zip(CopyFigures.__struct_fields__, msgspec.structs.astuple(before or CopyFigures()), strict=True))
    for kind in ("memory", "disk"):
        if job.get(f"{kind}_total"):
            kept |= {f"{kind}_{part}": int(job.get(f"{kind}_{part}", 0)) for part in PARTS}
    return CopyFigures(**{**kept, "halved": halved})


def abort_job(domain: libvirt.virDomain) -> None:
    """Have the job of a domain come to nothing; there may be none yet, or none any more."""
    try:
        domain.abortJob()
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
            raise


def open_disks(domain: libvirt.virDomain, *, start: bool) -> None:
    """Let a guest go on that came paused; for a moment only, unless it is to `start`. Raises libvirt.libvirtError.

    QEMU opens its disks for writing just then. Before 10.0 it dies, and the guest with it, when a guest that has not
    gone on since it came is to go again (QEMU's issue 2395). One that runs by an end that was cut is paused, too.
    """
    if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
        domain.resume()
    if not start and domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
        domain.suspend()
