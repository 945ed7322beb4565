"""What the driver reads of flavors and images."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.hardware import Hardware
from skep.compute.drivers.libvirt.keys import refused_keys
from skep.compute.drivers.libvirt.means import HostMeans
from skep.compute.drivers.libvirt.options import Options
from skep.compute.drivers.libvirt.properties import Wishes, check, wishes
from tests.support.libvirt_samples import server

OPTIONS = Options(virt_type="qemu")
REFUSED_KEYS = refused_keys(HostMeans(machines=frozenset({"pc", "q35"}), video_models=frozenset({"vga"})))


def test_nothing_asked_is_the_usual_guest() -> None:
    assert wishes(server({}, {}), OPTIONS) == Wishes(machine="pc")
    assert wishes(msgspec.structs.replace(server({}, {}), image=None), OPTIONS) == Wishes(machine="pc")


@pytest.mark.parametrize(
    ("specs", "properties", "key", "error"),
    [
        ({"hw:cpu_policy": "dedicated"}, {}, "hw:cpu_policy", "InstanceUnacceptable"),
        ({"hide_hypervisor_id": "yes", "hw:tpm_version": "2.0"}, {}, "hw:tpm_version", "InstanceUnacceptable"),
        ({"hw:cpu_policy": "shared"}, {"hw_disk_bus": "fdc"}, "hw_disk_bus", "ImageUnacceptable"),
        ({}, {"hw_machine_type": "pc' evil='"}, "hw_machine_type", "ImageUnacceptable"),
        ({}, {"hw_architecture": "aarch64"}, "hw_architecture", "ImageUnacceptable"),
    ],
)
def test_what_the_host_refuses_is_refused_by_its_name(
    specs: dict[str, str], properties: dict[str, str], key: str, error: str
) -> None:
    with pytest.raises(DriverError, match=key) as raised:
        check(server(specs, properties), REFUSED_KEYS)
    assert raised.value.error == error


def test_what_the_host_gives_is_not_refused() -> None:
    check(
        server({"hw:cpu_policy": "shared", "colour": "red"}, {"hw_video_model": "VGA", "colour": "red"}), REFUSED_KEYS
    )
    check(msgspec.structs.replace(server({}, {}), image=None), REFUSED_KEYS)


@pytest.mark.parametrize(
    ("specs", "properties", "key"),
    [
        ({"hw:cpu_sockets": "3"}, {}, "hw:cpu_sockets"),
        ({"hw:cpu_cores": "0"}, {}, "hw:cpu_cores"),
        ({"hw:cpu_threads": "two"}, {}, "hw:cpu_threads"),
        ({}, {"hw_cpu_sockets": "3"}, "hw_cpu_sockets"),
        ({"hw:cpu_max_cores": "1"}, {"hw_cpu_max_cores": "2"}, "hw_cpu_max_cores"),
        ({"hw:cpu_max_cores": "1"}, {"hw_cpu_cores": "2"}, "hw_cpu_cores"),
        ({"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1"}, {"hw_cpu_max_threads": "2"}, "hw_cpu_max_threads"),
        ({"hw:cpu_max_sockets": "3", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "1"}, {}, "hw:cpu_max_sockets"),
        ({"hw:pmu": "yes"}, {"hw_pmu": "no"}, "hw_pmu"),
        ({"hw:sound_model": "ac97"}, {"hw_sound_model": "ich6"}, "hw_sound_model"),
        ({"os:secure_boot": "required"}, {"hw_machine_type": "q35"}, "os:secure_boot"),
        ({}, {"os_secure_boot": "required", "hw_firmware_type": "uefi"}, "os_secure_boot"),
        ({"hw:viommu_model": "intel"}, {}, "hw:viommu_model"),
        ({}, {"hw_viommu_model": "auto", "hw_machine_type": "pc-i440fx-7.2"}, "hw_viommu_model"),
        ({"hw:usb_model": "none"}, {"hw_input_bus": "usb"}, "hw:usb_model"),
        ({"hw:maxphysaddr_mode": "emulate"}, {}, "hw:maxphysaddr_bits"),
        ({}, {"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": "many"}, "hw_maxphysaddr_bits"),
        ({"hw_rng:rate_bytes": "0"}, {}, "hw_rng:rate_bytes"),
        ({"hw_rng:rate_bytes": "9" * 30}, {}, "hw_rng:rate_bytes"),
        ({"quota:disk_read_bytes_sec": "5", "quota:disk_total_bytes_sec": "5"}, {}, "quota:disk_read_bytes_sec"),
        ({"quota:disk_total_iops_sec": "-1"}, {}, "quota:disk_total_iops_sec"),
        ({}, {"hw_machine_type": "-"}, "hw_machine_type"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(
    specs: dict[str, str], properties: dict[str, str], key: str
) -> None:
    with pytest.raises(DriverError) as raised:
        wishes(server(specs, properties), OPTIONS)
    assert raised.value.message.startswith(f"{key}: ")
    assert raised.value.error == ("InstanceUnacceptable" if ":" in key else "ImageUnacceptable")


def test_an_image_asks_for_no_more_memory_of_the_screen_than_the_flavor_allows() -> None:
    for specs in ({}, {"hw_video:ram_max_mb": "15"}):
        with pytest.raises(DriverError, match="hw_video_ram") as raised:
            wishes(server(specs, {"hw_video_model": "vga", "hw_video_ram": "16"}), OPTIONS)
        assert raised.value.error == "RequestedVRamTooHigh"


def test_what_is_used() -> None:
    properties = {"hw_disk_bus": "scsi", "hw_cdrom_bus": "SATA", "hw_machine_type": "pc-q35-7.2"}
    found = wishes(server({"hw_rng:allowed": "false", "hw:virtio_packed_ring": "yes"}, properties), OPTIONS)
    assert found == Wishes(
        disk_bus="scsi", cdrom_bus="sata", machine="pc-q35-7.2", packed=True, hardware=Hardware(rng=False)
    )


def test_yes_is_yes_in_any_word() -> None:
    assert wishes(server({"hw:pmu": "yes"}, {"hw_pmu": "True"}), OPTIONS).hardware.pmu is True


@pytest.mark.parametrize(
    ("specs", "properties", "topology"),
    [
        ({"hw:cpu_cores": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_sockets": "1"}, {}, (1, 4, 1)),
        ({"hw:cpu_sockets": "1", "hw:cpu_threads": "2"}, {}, (1, 2, 2)),
        ({"hw:cpu_sockets": "2", "hw:cpu_cores": "1"}, {}, (2, 1, 2)),
        ({"hw:cpu_sockets": "2", "hw:cpu_cores": "2", "hw:cpu_threads": "1"}, {}, (2, 2, 1)),
        ({"hw:cpu_sockets": "4"}, {"hw_cpu_cores": "4"}, (1, 4, 1)),
        ({"hw:cpu_max_sockets": "1"}, {}, (1, 4, 1)),
        ({"hw:cpu_max_sockets": "2", "hw:cpu_max_cores": "1"}, {}, (2, 1, 2)),
        ({"hw:cpu_max_sockets": "4"}, {"hw_cpu_max_sockets": "2"}, (2, 2, 1)),
    ],
)
def test_the_topology_of_the_cpus(
    specs: dict[str, str], properties: dict[str, str], topology: tuple[int, int, int]
) -> None:
    assert wishes(server(specs, properties), OPTIONS).topology == topology


@pytest.mark.parametrize(
    ("properties", "agent", "administrator"),
    [
        ({"hw_qemu_guest_agent": "Yes"}, True, "root"),
        ({"hw_qemu_guest_agent": "true", "os_type": "windows"}, True, "Administrator"),
        ({"hw_qemu_guest_agent": "1", "os_type": "windows", "os_admin_user": "me"}, True, "me"),
        ({"hw_qemu_guest_agent": "no", "os_admin_user": "me"}, False, ""),
        ({}, False, ""),
    ],
)
def test_whose_password_the_agent_changes(properties: dict[str, str], agent: bool, administrator: str) -> None:
    found = wishes(server({}, properties), OPTIONS)
    assert (found.agent, found.administrator) == (agent, administrator)
