"""Mediated devices that a host offers, by what libvirt says of its devices, and those that a guest has."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.libvirt.domain import guest_xml
from skep.compute.drivers.libvirt.mediated_devices import (
    MediatedDevice,
    device_xml,
    held_mediated,
    offers,
    read_parent,
    read_uuid,
)
from skep.compute.drivers.libvirt.options import MediatedDevices, Options
from skep.domain.providers import Allocation, ProviderShare
from tests.support.libvirt_samples import SAMPLES, shape_of
from tests.support.node_devices import COMPUTER, LARGE, OTHERS, ROOM, SMALL, card_xml, part_xml

CARDS = tuple(one for one in (read_parent(card_xml(6, 1, ROOM)), read_parent(card_xml(0x81, None, ROOM))) if one)


def test_cards_are_read_with_the_types_that_guests_see_as_pci_devices() -> None:
    assert [(one.name, one.address, one.numa) for one in CARDS] == [
        ("pci_0000_06_00_0", "0000:06:00.0", 1),
        ("pci_0000_81_00_0", "0000:81:00.0", None),
    ]
    assert [one.types for one in CARDS] == [ROOM, ROOM]
    assert read_parent(COMPUTER) is None
    assert read_uuid(part_xml("pci_0000_06_00_0", SMALL, OTHERS)) == OTHERS


def test_of_a_card_one_type_is_offered_and_the_first_entry_counts() -> None:
    large = MediatedDevices(type=LARGE, address="0000:81:*", resource_class="CUSTOM_LARGE", traits=("CUSTOM_FAST",))
    first, second = offers((large, MediatedDevices(type=SMALL)), CARDS)
    room, fast = first.room(0), second.room(1)
    assert {name: one.total for name, one in room.inventory.items()} == {"VGPU": 4}
    assert (room.numa, room.traits, room.devices) == (1, (), ())
    assert {name: one.total for name, one in fast.inventory.items()} == {"CUSTOM_LARGE": 3}
    assert (fast.numa, fast.traits) == (None, ("CUSTOM_FAST",))
    assert offers((MediatedDevices(type="other"),), CARDS) == ()
    assert offers((), CARDS) == ()


def test_what_is_counted_as_something_else_has_another_name() -> None:
    names = {
        offers((MediatedDevices(type=SMALL, **more),), CARDS)[0].provider
        for more in ({}, {"resource_class": "CUSTOM_SMALL"}, {"traits": ("CUSTOM_A",)})
    }
    assert len(names) == 3


def test_a_guest_has_the_devices_that_it_was_given() -> None:
    shares = (
        ProviderShare(provider="mdev-0000:06:00.0-nvidia-222-00000000", resources={"VGPU": 2}),
        ProviderShare(provider="nics", resources={"CUSTOM_NIC": 1}, devices=("0000:81:02.1",)),
    )
    assert held_mediated(Allocation(providers=shares)) == {shares[0].provider: 2}
    assert held_mediated(None) == {}
    root = ET.fromstring(guest_xml(msgspec.structs.replace(shape_of(SAMPLES["nothing"]), mediated=(OTHERS,))))
    [element] = root.findall("devices/hostdev[@mode='subsystem'][@type='mdev'][@model='vfio-pci']/source/address")
    assert element.attrib == {"uuid": OTHERS}


def test_libvirt_is_asked_for_a_device_by_its_parent_type_and_uuid() -> None:
    root = ET.fromstring(device_xml(MediatedDevice(uuid=OTHERS, provider="", parent="pci_0000_06_00_0", type=SMALL)))
    assert root.findtext("parent") == "pci_0000_06_00_0"
    assert root.find(f"capability[@type='mdev']/type[@id='{SMALL}']") is not None
    assert root.findtext("capability/uuid") == OTHERS


def test_devices_that_cannot_be_offered_are_refused() -> None:
    said = (MediatedDevices(type=SMALL),)
    with pytest.raises(ValueError, match="made by a libvirtd"):
        Options(virt_type="kvm", mediated_devices=said)
    with pytest.raises(ValueError, match="virt_type kvm only"):
        Options(virt_type="qemu", uri="qemu:///system", mediated_devices=said)
    assert Options(virt_type="kvm", uri="qemu:///system", mediated_devices=said).mediated_devices == said
