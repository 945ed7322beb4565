"""PCI devices that a host offers, and those that a guest has."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.libvirt.domain import guest_xml
from skep.compute.drivers.libvirt.options import Options, PciDevices
from skep.compute.drivers.libvirt.pci_devices import PciDevice, held_devices, inventory, pci_devices, pools
from skep.domain.providers import Allocation, ProviderShare
from tests.support.libvirt_samples import SAMPLES, shape_of


def device(root: Path, address: str, kind: str = "0x020000", numa: str = "-1", functions: str = "") -> Path:
    path = root / address
    path.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", "0x1572"), ("class", kind), ("numa_node", numa)):
        (path / name).write_text(f"{text}\n")
    if functions:
        (path / "sriov_totalvfs").write_text(f"{functions}\n")
    return path


@pytest.fixture
def found(tmp_path: Path) -> tuple[PciDevice, ...]:
    device(tmp_path, "0000:00:00.0", kind="0x060000")
    parent = device(tmp_path, "0000:81:00.0", numa="1", functions="8")
    device(tmp_path, "0000:81:02.0", numa="1").joinpath("physfn").symlink_to(parent)
    device(tmp_path, "0000:81:02.1", numa="1").joinpath("physfn").symlink_to(parent)
    device(tmp_path, "0000:02:00.0", functions="0")
    return pci_devices(tmp_path)


def test_devices_are_found_but_bridges_are_not(found: tuple[PciDevice, ...]) -> None:
    assert [(one.address, one.dev_type, one.numa) for one in found] == [
        ("0000:02:00.0", "type-PCI", None),
        ("0000:81:00.0", "type-PF", 1),
        ("0000:81:02.0", "type-VF", 1),
        ("0000:81:02.1", "type-VF", 1),
    ]
    assert pci_devices(Path("/no/such/place")) == ()


def test_what_is_offered_is_in_pools_of_devices_that_are_alike(found: tuple[PciDevice, ...]) -> None:
    offered = (
        PciDevices(vendor_id="8086", address="0000:81:02.*", resource_class="CUSTOM_NIC", traits=("CUSTOM_FAST",)),
        PciDevices(address="0000:02:*"),
    )
    plain, fast = pools(offered, found)
    assert (plain.devices, plain.numa) == (("0000:02:00.0",), None)
    assert (fast.devices, fast.numa, fast.traits) == (("0000:81:02.0", "0000:81:02.1"), 1, ("CUSTOM_FAST",))
    assert (fast.vendor_id, fast.product_id, fast.dev_type) == ("8086", "1572", "type-VF")
    totals = {name: one.total for name, one in inventory((plain, fast)).items()}
    assert totals == {"CUSTOM_PCI_8086_1572": 1, "CUSTOM_NIC": 2}
    [alone] = pools(offered, found[-1:])
    assert alone.name == fast.name, "the name stays when others come and go"
    assert pools((PciDevices(vendor_id="10de"),), found) == ()


def test_a_guest_has_the_devices_that_it_was_given() -> None:
    allocation = Allocation(
        providers=(
            ProviderShare(provider="a", resources={"CUSTOM_NIC": 1}, devices=("0000:81:02.1",)),
            ProviderShare(provider="b", resources={"CUSTOM_OTHER": 1}, devices=("card-7",)),
        )
    )
    held = held_devices(allocation)
    assert held == ("0000:81:02.1",)
    assert held_devices(None) == ()
    root = ET.fromstring(guest_xml(msgspec.structs.replace(shape_of(SAMPLES["nothing"]), host_devices=held)))
    [element] = root.findall("devices/hostdev[@mode='subsystem'][@type='pci'][@managed='yes']/source/address")
    assert element.attrib == {"domain": "0x0000", "bus": "0x81", "slot": "0x02", "function": "0x1"}


def test_devices_that_cannot_be_offered_are_refused() -> None:
    with pytest.raises(ValueError, match="vendor_id, or an address"):
        PciDevices(address="*:*.*")
    with pytest.raises(ValueError, match="virt_type kvm only"):
        Options(virt_type="qemu", pci_devices=(PciDevices(vendor_id="8086"),))
