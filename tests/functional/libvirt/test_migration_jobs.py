"""What libvirt says of guests that leave."""

from __future__ import annotations

import pytest

from tests.support.libvirt_hosts import PARTS

pytestmark = [*PARTS, pytest.mark.timeout(20)]


class LeftDomain:
    """A domain that has left meanwhile, as libvirt has it then."""

    def state(self) -> list[int]:
        import libvirt

        connection = libvirt.open("test:///default")
        state: list[int] = connection.lookupByName("left").state()
        return state

    jobStats = state  # noqa: N815 - libvirt's


def test_a_guest_that_leaves_while_it_is_looked_at_has_no_job() -> None:
    from skep.compute.drivers.libvirt.migration_jobs import is_leaving, seen_of  # it imports what may not be installed

    assert seen_of(LeftDomain()) == ({}, False)
    assert not is_leaving(LeftDomain())
