"""The XML of guests: what goes in comes out, whatever it is."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.compute.drivers.libvirt.domain import (
    BackingFile,
    DiskFile,
    GuestLabel,
    GuestShape,
    disk_targets,
    guest_xml,
    label_element,
    label_in,
    read_label,
    target_of,
)
from skep.domain.ids import InstanceUuid
from skep.domain.providers import Allocation, CellShare

UUID = InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11")
LABEL = GuestLabel(instance=UUID, attempt=3, name="web", resources={"VCPU": 2, "MEMORY_MB": 64})
SHAPE = GuestShape(label=LABEL, vcpus=2, memory_mb=64, virt_type="qemu", machine="pc", console_file="/g/console.log")
PATHS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1)


@given(name=st.text(), attempt=st.integers(0, 1 << 50), classes=st.dictionaries(st.text(), st.integers(0, 1 << 40)))
def test_a_label_comes_back_as_it_was(name: str, attempt: int, classes: dict[str, int]) -> None:
    allocation = Allocation(cells=(CellShare(cell=0, shared=1, memory_mb=64),))
    label = GuestLabel(instance=UUID, attempt=attempt, name=name, resources=classes, allocation=allocation, whole=True)
    assert read_label(label_element(label)) == label
    assert label_in(guest_xml(msgspec.structs.replace(SHAPE, label=label))) == label


@given(path=PATHS, base=PATHS, console=PATHS)
def test_paths_of_any_text_are_those_of_the_disks(path: str, base: str, console: str) -> None:
    disk = DiskFile(path=path, format="qcow2", backing=BackingFile(path=base, format="raw"))
    xml = guest_xml(msgspec.structs.replace(SHAPE, disks=(disk,), console_file=console))
    root = ET.fromstring(xml)
    (source,) = root.findall("devices/disk/source")
    (under,) = root.findall("devices/disk/backingStore/source")
    (log,) = root.findall("devices/serial/log")
    assert (source.get("file"), under.get("file"), log.get("file")) == (path, base, console)
    assert target_of(xml, path) == "vda"


def test_a_name_adds_no_element() -> None:
    label = msgspec.structs.replace(LABEL, name="</name></domain><devices>&amp;<!--'\"\n\0")
    plain = [element.tag for element in ET.fromstring(guest_xml(SHAPE)).iter()]
    assert [
        element.tag for element in ET.fromstring(guest_xml(msgspec.structs.replace(SHAPE, label=label))).iter()
    ] == plain


def test_formats_are_said_of_every_file_and_nothing_is_looked_for_under_a_disk() -> None:
    """A format that is not said would be guessed, of bytes that a guest wrote."""
    disks = (
        DiskFile(path="/disk", format="qcow2", backing=BackingFile(path="/base.raw", format="raw")),
        DiskFile(path="/swap", format="raw"),
    )
    root = ET.fromstring(guest_xml(msgspec.structs.replace(SHAPE, disks=disks)))
    for disk in root.findall("devices/disk"):
        driver = disk.find("driver")
        assert driver is not None
        assert driver.get("type") in ("raw", "qcow2")
        under = disk.find(".//backingStore[last()]")
        assert under is not None
    ends = [store for store in root.iter("backingStore") if len(store) == 0]
    assert len(ends) == len(disks)
    (label,) = root.findall(".//backingStore/source/seclabel")
    assert label.get("relabel") == "no"


def test_disks_have_names_by_their_bus_in_order() -> None:
    disks = (
        DiskFile(path="/a", format="qcow2"),
        DiskFile(path="/b", format="raw"),
        DiskFile(path="/c", format="raw", bus="ide", cdrom=True),
        DiskFile(path="/d", format="raw", bus="sata"),
        DiskFile(path="/e", format="raw", bus="scsi"),
    )
    assert disk_targets(disks) == ("vda", "vdb", "hda", "sda", "sdb")


def test_a_domain_without_a_label_is_of_another() -> None:
    assert label_in("<domain type='qemu'><name>theirs</name></domain>") is None


@pytest.mark.parametrize("element", ["<guest>{}</guest>", "<guest/>", "<guest>", "<guest>[1]</guest>"])
def test_a_label_that_cannot_be_read_is_an_error(element: str) -> None:
    with pytest.raises(ValueError, match="label of a guest"):
        read_label(element)


@pytest.mark.parametrize(
    ("virt_type", "model", "said"),
    [("kvm", "", "host-model"), ("qemu", "", None), ("kvm", "host-passthrough", "host-passthrough")],
)
def test_the_model_of_the_cpu(virt_type: str, model: str, said: str | None) -> None:
    shape = msgspec.structs.replace(SHAPE, virt_type=virt_type, cpu_model=model, topology=(1, 2, 1))
    root = ET.fromstring(guest_xml(shape))
    cpu, topology = root.find("cpu"), root.find("cpu/topology")
    assert cpu is not None
    assert topology is not None
    assert cpu.get("mode") == said
    assert topology.attrib == {"sockets": "1", "cores": "2", "threads": "1"}


def test_a_named_model_is_that_one_or_none() -> None:
    root = ET.fromstring(guest_xml(msgspec.structs.replace(SHAPE, cpu_model="EPYC")))
    model = root.find("cpu/model")
    assert model is not None
    assert (model.text, model.get("fallback")) == ("EPYC", "forbid")
