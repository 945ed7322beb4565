"""Guests in two halves whose hosts have lost each other in the middle of post-copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skep.domain.ids import InstanceUuid, new_uuid
from tests.support.libvirt_hosts import PARTS

if TYPE_CHECKING:
    import libvirt

pytestmark = [*PARTS, pytest.mark.timeout(20)]


class PartedDomain:
    """A domain as libvirt has it then: paused, and with a job that goes on until its halves are joined."""

    def state(self) -> list[int]:
        import libvirt

        return [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED]

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        import libvirt

        operation = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        return {"operation": operation, "type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED}


def test_the_halves_are_joined_though_libvirt_says_that_their_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skep.compute.drivers.libvirt.live import LiveMigratingLibvirtDriver  # it imports what may not be installed

    parted = PartedDomain()
    sent: list[object] = []

    def send(driver: object, domain: libvirt.virDomain, attempt: int, place: Path) -> None:
        sent.append(domain)

    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_leaving", lambda *_: parted)
    monkeypatch.setattr(LiveMigratingLibvirtDriver, "_send", send)
    driver = object.__new__(LiveMigratingLibvirtDriver)
    driver._migrate(InstanceUuid(new_uuid()), 1, tmp_path)
    assert sent == [parted]
