"""What a host connects, what it refuses by name, and what the guest's XML says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.volume_disks import (
    BlockSource,
    FileSource,
    RbdSource,
    VolumeDisk,
    backing_files,
    found_volume,
    free_target,
    target_of_volume,
    volume_element,
)
from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds, disk_of
from skep.domain.volumes import ConnectedVolume
from tests.support.noted_bricks import NotedBricks

SECRET = "5f0c2c63-1111-4222-8333-444455556666"
CEPH: dict[str, Any] = {
    "name": "volumes/volume-1",
    "hosts": ["10.0.0.1", "10.0.0.2"],
    "ports": ["6789", 3300],
    "auth_enabled": True,
    "auth_username": "cinder",
    "secret_uuid": SECRET,
}


@pytest.fixture
def bricks(tmp_path: Path) -> NotedBricks:
    return NotedBricks(tmp_path)


@pytest.fixture
def kinds(bricks: NotedBricks) -> VolumeKinds:
    return VolumeKinds(bricks)


def volume(driver: str, *, shared: bool = False, **data: Any) -> ConnectedVolume:
    return ConnectedVolume(
        volume_id="v-1", attachment_id="a-1", device="/dev/vdb", driver=driver, data=data, shared=shared
    )


def test_a_file_and_a_device_that_are_on_the_host(kinds: VolumeKinds, bricks: NotedBricks, tmp_path: Path) -> None:
    file = tmp_path / "volume"
    file.touch()
    wanted = volume("local", device_path=str(file))
    kinds.check(wanted)
    assert kinds.connect(wanted) == FileSource(path=str(file))
    kinds.disconnect(wanted, FileSource(path=str(file)))
    kinds.extend(wanted)
    assert bricks.asked == [], "QEMU does all of it"


def test_ceph_is_reached_by_qemu(kinds: VolumeKinds) -> None:
    wanted = volume("rbd", **CEPH)
    kinds.check(wanted)
    source = kinds.connect(wanted)
    assert source == RbdSource(
        name="volumes/volume-1", hosts=(("10.0.0.1", "6789"), ("10.0.0.2", "3300")), user="cinder", secret=SECRET
    )
    element = ET.fromstring(volume_element(disk_of(wanted, source, "virtio"), "vdb"))
    assert (element.get("type"), element.find("source/host[2]").attrib) == (  # type: ignore[union-attr]
        "network",
        {"name": "10.0.0.2", "port": "3300"},
    )
    assert element.find("auth/secret").attrib == {"type": "ceph", "uuid": SECRET}  # type: ignore[union-attr]
    open_ = kinds.connect(volume("rbd", **{**CEPH, "auth_enabled": False}))
    assert volume_element(disk_of(wanted, open_, "virtio"), "vdb").count("auth") == 0


@pytest.mark.parametrize(("driver", "protocol"), [("iscsi", "ISCSI"), ("nfs", "NFS")])
def test_the_library_makes_what_qemu_does_not_reach(
    kinds: VolumeKinds, bricks: NotedBricks, tmp_path: Path, driver: str, protocol: str
) -> None:
    wanted = volume(driver, name="one")
    source = kinds.connect(wanted)
    assert source == FileSource(path=str(tmp_path / "one"))
    kinds.extend(wanted)
    kinds.disconnect(wanted, source)
    kinds.disconnect(wanted, None)
    assert bricks.asked == [
        ("connect", protocol, "one"),
        ("extend", protocol, "one"),
        ("disconnect", protocol, "one", str(tmp_path / "one")),
        ("disconnect", protocol, "one", ""),
    ]


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        (volume("fibre_channel"), "VolumeNotSupported", "fibre_channel; this host connects iscsi, local, nfs, rbd"),
        (volume("iscsi"), "VolumeNotSupported", "volumes by ISCSI: not here"),
        (volume("local", device_path="/", encrypted=True), "VolumeEncryptionNotSupported", "encrypted"),
        (volume("local"), "VolumeNotSupported", "device_path"),
        (volume("local", device_path="volume"), "VolumeNotSupported", "not absolute"),
        (volume("local", device_path="/nothing/there"), "VolumeUnavailable", "/nothing/there"),
        (volume("nfs", format="vmdk"), "VolumeNotSupported", "vmdk"),
        (volume("nfs", shared=True, format="qcow2"), "VolumeNotSupported", "not raw"),
        (volume("rbd", **{**CEPH, "ports": []}), "VolumeNotSupported", "monitors"),
        (volume("rbd", **{**CEPH, "secret_uuid": "mine"}), "VolumeNotSupported", "secret_uuid"),
    ],
)
def test_what_cannot_be_connected_is_refused_by_name(
    kinds: VolumeKinds, bricks: NotedBricks, wanted: ConnectedVolume, error: str, words: str
) -> None:
    bricks.lacking = "ISCSI"
    with pytest.raises(DriverError) as raised:
        kinds.check(wanted)
    assert (raised.value.error, words in raised.value.message) == (error, True), raised.value.message
    assert bricks.asked == []


def test_the_xml_says_how_a_volume_is_used() -> None:
    specs = {"total_iops_sec": "100", "read_bytes_sec_max": 7, "of_the_storage": "fast"}
    told = {"discard": True, "access_mode": "ro", "qos_specs": specs}
    disk = disk_of(volume("local", shared=True, **told), BlockSource(path="/dev/x"), "scsi")
    xml = volume_element(disk, "sdb")
    element = ET.fromstring(xml)
    assert element.find("driver").attrib == {  # type: ignore[union-attr]
        "name": "qemu",
        "type": "raw",
        "cache": "none",
        "io": "native",
        "discard": "unmap",
    }
    assert {part.tag: part.text for part in element.find("iotune") or ()} == {
        "total_iops_sec": "100",
        "read_bytes_sec_max": "7",
    }
    assert [part.tag for part in element][-4:] == ["readonly", "shareable", "serial", "alias"]
    assert (element.findtext("serial"), element.find("alias").attrib) == ("v-1", {"name": "ua-v-1"})  # type: ignore[union-attr]
    slow = VolumeDisk(volume_id="v-2", source=FileSource(path="/x"), direct=False)
    assert 'cache="writeback" io="threads"' in volume_element(slow, "vdb")


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(DriverError, match="total_iops_sec: fast"):
        disk_of(volume("local", qos_specs={"total_iops_sec": "fast"}), BlockSource(path="/dev/x"), "virtio")


def test_a_volume_is_found_again_by_its_serial() -> None:
    first = volume_element(VolumeDisk(volume_id="v-1", source=FileSource(path="/x")), "vdb")
    domain = f"<domain><devices><disk><target dev='vda'/></disk>{first}</devices></domain>"
    assert target_of_volume(domain, "v-1") == "vdb"
    assert found_volume(domain, "v-2") is None
    assert (free_target(domain, "virtio"), free_target(domain, "scsi")) == ("vdc", "sda")


def test_what_is_told_of_a_connection_is_not_shown() -> None:
    assert "secret" not in repr(volume("iscsi", auth_password="secret"))
    assert msgspec.json.decode(msgspec.json.encode(volume("iscsi", auth_password="secret")))["data"]


def test_the_files_below_that_of_a_volume_are_found_in_their_order() -> None:
    layers = "".join(f'<backingStore type="file" index="{index}"><source file="/v/{index}"/>' for index in (5, 3))
    disk = f'<source file="/v/7" index="7"/>{layers}<backingStore/></backingStore></backingStore><serial>v-1</serial>'
    domain = f"<domain><devices><disk>{disk}</disk></devices></domain>"
    assert list(backing_files(domain, "v-1").items()) == [("/v/5", "5"), ("/v/3", "3")]
    assert backing_files(domain, "v-2") == {}
