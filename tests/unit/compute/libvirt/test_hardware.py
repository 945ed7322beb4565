"""Each key that is used changes the XML as its sample says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from skep.compute.drivers.libvirt.domain import guest_xml
from skep.compute.drivers.libvirt.keys import EXTRA_SPECS, IMAGE_PROPERTIES, KeyEffect, row_of
from tests.support.libvirt_samples import SAMPLES, shape_of

ELSEWHERE = {
    *("hw_architecture", "hw_vif_model", "hw_virtio_packed_ring", "hw:virtio_packed_ring"),
    *("os_admin_user", "os_require_quiesce"),
    *("hw:vif_multiqueue_enabled", "hw_vif_multiqueue_enabled", "quota:vif_inbound_*"),
}
"""Used, and not in the XML of a machine: interfaces are arguments of QEMU or the host's, and agents are asked.
They have tests of their own."""


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_in_the_xml(name: str) -> None:
    sample = SAMPLES[name]
    root = ET.fromstring(guest_xml(shape_of(sample)))
    # ElementTree finds nothing under the root by an attribute of the root.
    assert [path for path in sample.found if root.find(path) is None] == []
    assert [path for path in sample.absent if root.find(path) is not None] == []


def test_every_key_that_is_used_has_a_sample() -> None:
    shown = {key for sample in SAMPLES.values() for key in (*sample.specs, *sample.properties)}
    used = [(rows, row) for rows in (EXTRA_SPECS, IMAGE_PROPERTIES) for row in rows if row.effect is KeyEffect.USED]
    unseen = [row.keys for rows, row in used if not any(row_of(rows, key) is row for key in shown)]
    assert [keys for keys in unseen if not ELSEWHERE.intersection(keys)] == []
