"""What the driver does with each extra spec and property."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.properties import EXTRA_SPECS, IMAGE_PROPERTIES, KeyEffect, Wishes, effect, wishes
from skep.domain.images import Image
from skep.domain.instances import Instance
from tests.support.agents import instance


def server(specs: dict[str, str], properties: dict[str, str], vcpus: int = 4) -> Instance:
    plain = instance()
    flavor = msgspec.structs.replace(plain.flavor, vcpus=vcpus, extra_specs=specs)
    return msgspec.structs.replace(plain, flavor=flavor, image=Image(id="image", properties=properties))


def test_nothing_asked_is_the_usual_guest() -> None:
    assert wishes(server({}, {})) == Wishes()
    assert wishes(msgspec.structs.replace(server({}, {}), image=None)) == Wishes()


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:cpu_policy": "dedicated"},
        {"hw:cpu_realtime": "yes"},
        {"hw:numa_nodes": "2"},
        {"hw:mem_page_size": "large"},
        {"hw:mem_encryption": "true"},
        {"hw:tpm_version": "2.0"},
        {"os:secure_boot": "required"},
        {"pci_passthrough:alias": "gpu:1"},
        {"quota:disk_read_iops_sec": "10"},
        {"resources:VGPU": "1"},
        {"resources1:VGPU": "1"},
        {"hw:cpu_sockets": "3"},
        {"hw:cpu_cores": "0"},
        {"hw:cpu_threads": "two"},
    ],
)
def test_an_extra_spec_that_cannot_be_had_is_refused_by_its_name(specs: dict[str, str]) -> None:
    with pytest.raises(DriverError, match=next(iter(specs))) as raised:
        wishes(server(specs, {}))
    assert raised.value.error == "InstanceUnacceptable"


@pytest.mark.parametrize(
    "properties",
    [
        {"hw_firmware_type": "uefi"},
        {"os_secure_boot": "required"},
        {"hw_tpm_model": "tpm-crb"},
        {"hw_disk_bus": "fdc"},
        {"hw_machine_type": "pc' evil='"},
        {"hw_machine_type": "-"},
        {"hw_architecture": "aarch64"},
        {"hw_emulation_architecture": "aarch64"},
        {"hw_cpu_sockets": "3"},
        {"kernel_id": "x"},
        {"os_require_quiesce": "yes"},
    ],
)
def test_a_property_that_cannot_be_had_is_refused_by_its_name(properties: dict[str, str]) -> None:
    with pytest.raises(DriverError, match=next(iter(properties))) as raised:
        wishes(server({}, properties))
    assert raised.value.error == "ImageUnacceptable"


def test_values_that_ask_for_nothing_are_taken() -> None:
    specs = {
        "hw:cpu_policy": "shared",
        "hw:mem_encryption": "False",
        "hw:mem_page_size": "small",
        "trait:X": "required",
    }
    properties = {"hw_firmware_type": "bios", "hw_locked_memory": "no", "hw_video_model": "vga", "os_type": "linux"}
    assert wishes(server(specs, properties)) == Wishes()


def test_what_is_used() -> None:
    properties = {"hw_disk_bus": "scsi", "hw_cdrom_bus": "sata", "hw_machine_type": "pc-q35-7.2"}
    found = wishes(server({"hw_rng:allowed": "false"}, properties))
    assert found == Wishes(disk_bus="scsi", cdrom_bus="sata", machine="pc-q35-7.2", rng=False)


@pytest.mark.parametrize(
    ("specs", "properties", "topology"),
    [
        ({"hw:cpu_cores": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_sockets": "1"}, {}, (1, 4, 1)),
        ({"hw:cpu_sockets": "1", "hw:cpu_threads": "2"}, {}, (1, 2, 2)),
        ({"hw:cpu_sockets": "2", "hw:cpu_cores": "1"}, {}, (2, 1, 2)),
        ({"hw:cpu_sockets": "2", "hw:cpu_cores": "2", "hw:cpu_threads": "1"}, {}, (2, 2, 1)),
        ({"hw:cpu_sockets": "4"}, {"hw_cpu_cores": "4"}, (1, 4, 1)),
    ],
)
def test_the_topology_of_the_cpus(
    specs: dict[str, str], properties: dict[str, str], topology: tuple[int, int, int]
) -> None:
    assert wishes(server(specs, properties)).topology == topology


def test_the_first_row_of_a_key_counts() -> None:
    assert effect(IMAGE_PROPERTIES, "hw_disk_bus") is KeyEffect.USED
    assert effect(IMAGE_PROPERTIES, "hw_video_model") is KeyEffect.NONE
    assert effect(EXTRA_SPECS, "hw:numa_cpus.0") is KeyEffect.REFUSED
    assert effect(EXTRA_SPECS, "vmware:anything") is KeyEffect.NONE
