"""The XML that a guest has on the host that it goes to live: what each host has elsewhere is named as it is there."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from skep.compute.drivers.libvirt.arrivals import (
    Arrival,
    arriving_xml,
    links_of,
    moving_disks,
    read_arrival,
    tapless,
    write_arrival,
)
from skep.compute.drivers.libvirt.domain import LABEL, NAMESPACE, GuestLabel
from skep.compute.drivers.libvirt.volume_disks import BlockSource, FileSource, RbdSource, Source, VolumeDisk
from skep.domain.ids import InstanceUuid

UUID = InstanceUuid("5f0c2c63-1111-4222-8333-444455556666")
HERE = Path("/here") / f"{UUID}_1"
THERE = f"/there/{UUID}_2"
CEPH = RbdSource(name="volumes/ceph", hosts=(("10.0.0.2", "3300"),), user="cinder", secret="there")
GUEST = f"""<domain>
  <metadata><skep:{LABEL} xmlns:skep="{NAMESPACE}">old</skep:{LABEL}></metadata>
  <devices>
    <disk type="file" device="disk"><driver name="qemu" type="qcow2" cache="none" io="native"/>
      <source file="{HERE}/disk" index="1"/><backingStore type="file"><format type="raw"/><source file="/bases/one"/>
      </backingStore><target dev="vda" bus="virtio"/></disk>
    <disk type="block" device="disk"><driver name="qemu" type="raw" cache="none" io="native" discard="unmap"/>
      <source dev="/dev/sda" index="2"/><backingStore/><target dev="vdb" bus="virtio"/><serial>iscsi</serial>
      <alias name="ua-iscsi"/></disk>
    <disk type="file" device="disk"><driver name="qemu" type="qcow2" cache="none" io="native"/>
      <source file="/mounts/here/nfs" index="3"/><backingStore type="file"><format type="qcow2"/>
      <source file="/mounts/here/below"/></backingStore><target dev="vdc" bus="virtio"/><serial>nfs</serial></disk>
    <disk type="network" device="disk"><driver name="qemu" type="raw" cache="none"/>
      <auth username="cinder"><secret type="ceph" uuid="here"/></auth>
      <source protocol="rbd" name="volumes/ceph"><host name="10.0.0.1" port="6789"/></source>
      <target dev="vdd" bus="virtio"/><serial>ceph</serial></disk>
  </devices>
</domain>"""


INTERFACES = """<domain>
  <metadata><skep:guest xmlns:skep="urn:skep:guest:1">old</skep:guest></metadata>
  <devices>
    <interface type="ethernet"><mac address="fa:16:3e:00:00:01"/><target dev="tap-one" managed="no"/>
      <model type="e1000e"/><bandwidth><inbound average="1000"/></bandwidth><mtu size="1400"/><alias name="net0"/>
      <rom enabled="no"/><address type="pci" domain="0x0000" bus="0x00" slot="0x03" function="0x0"/></interface>
    <interface type="ethernet"><mac address="fa:16:3e:00:00:02"/><target dev="tap-two" managed="no"/>
      <model type="virtio"/><driver queues="2" packed="on"/><mtu size="1500"/><rom enabled="no"/></interface>
    {more}
  </devices>
</domain>"""


def volume(name: str, source: Source, **more: object) -> VolumeDisk:
    return msgspec.convert({"volume_id": name, "source": msgspec.to_builtins(source), **more}, VolumeDisk)


VOLUMES = (
    volume("iscsi", BlockSource(path="/dev/sdq")),
    volume("nfs", FileSource(path="/mounts/there/nfs"), format="qcow2", direct=False),
    volume("ceph", CEPH),
)


def arrival(*volumes: VolumeDisk) -> Arrival:
    return Arrival(
        label=GuestLabel(instance=UUID, attempt=2, name="one", resources={}),
        uri="qemu+tls://there/system",
        address="10.0.0.2",
        way="tls",
        directory=THERE,
        mark="mark",
        volumes=volumes,
    )


def disks(xml: str) -> dict[str, ET.Element]:
    found = {}
    for disk in ET.fromstring(xml).findall("devices/disk"):
        target = disk.find("target")
        assert target is not None
        found[target.get("dev", "")] = disk
    return found


def source_of(disk: ET.Element) -> dict[str, str]:
    source = disk.find("source")
    assert source is not None
    return source.attrib


@pytest.mark.parametrize("shared", [False, True])
def test_volumes_are_where_the_target_has_them(shared: bool) -> None:
    found = disks(arriving_xml(GUEST, HERE, arrival(*VOLUMES), shared=shared))
    assert source_of(found["vda"]) == {"file": f"{THERE}/disk", "index": "1"}
    below = found["vda"].find("backingStore/source")
    assert (below is not None) is shared, "what was copied is whole"
    assert (found["vdb"].get("type"), source_of(found["vdb"])) == ("block", {"dev": "/dev/sdq"})
    assert (found["vdc"].get("type"), source_of(found["vdc"])) == ("file", {"file": "/mounts/there/nfs"})
    assert found["vdc"].find("backingStore") is None, "what lies below is looked for where the volume is"
    caches = {name: disk.find("driver") for name, disk in found.items()}
    assert [caches[name].get("cache") for name in ("vdb", "vdc", "vdd")] == ["none", "writeback", "none"]  # type: ignore[union-attr]
    assert [caches[name].get("io") for name in ("vdb", "vdc", "vdd")] == ["native", "threads", None]  # type: ignore[union-attr]
    assert caches["vdb"].get("discard") == "unmap"  # type: ignore[union-attr]
    assert source_of(found["vdd"]) == {"protocol": "rbd", "name": "volumes/ceph"}
    reached = [one.attrib for name in ("host", "secret") for one in found["vdd"].iter(name)]
    assert reached == [{"name": "10.0.0.2", "port": "3300"}, {"type": "ceph", "uuid": "there"}]
    assert [disk.findtext("serial") for disk in found.values()] == [None, "iscsi", "nfs", "ceph"]


def test_a_volume_that_is_a_file_here_and_a_device_there() -> None:
    there = volume("nfs", BlockSource(path="/dev/sdr"))
    found = disks(arriving_xml(GUEST, HERE, arrival(there), shared=False))["vdc"]
    assert (found.get("type"), source_of(found)) == ("block", {"dev": "/dev/sdr"})


def test_only_disks_of_the_guest_itself_are_copied() -> None:
    assert [disk.target for disk in moving_disks(GUEST, HERE)] == ["vda"]


def test_what_a_target_says_is_read_by_the_source(tmp_path: Path) -> None:
    """Also of targets of releases that took no volumes along."""
    said = arrival(*VOLUMES)
    write_arrival(tmp_path, said)
    assert read_arrival(tmp_path) == said
    [file] = tmp_path.iterdir()
    before = {name: value for name, value in msgspec.json.decode(file.read_bytes()).items() if name != "volumes"}
    file.write_bytes(msgspec.json.encode(before))
    assert read_arrival(tmp_path) == arrival()


def test_an_interface_ends_in_the_tap_of_the_target_and_is_else_as_it_was() -> None:
    """How the tap is plugged there is the target's matter: the guest is told of none of it."""
    guest = INTERFACES.format(more="")
    assert links_of(guest) == {"fa:16:3e:00:00:01": "tap-one", "fa:16:3e:00:00:02": "tap-two"}
    links = {"fa:16:3e:00:00:01": "tap-three", "fa:16:3e:00:00:02": "tap-two"}
    there = arriving_xml(guest, HERE, msgspec.structs.replace(arrival(), links=links), shared=True)
    assert links_of(there) == links
    before, after = (ET.fromstring(one).findall("devices/interface") for one in (guest, there))
    for one, other in zip(before, after, strict=True):
        for element in (one, other):
            element.remove(*element.findall("target"))
        assert ET.tostring(one) == ET.tostring(other)


@pytest.mark.parametrize("kind", ["direct", "vhostuser", "hostdev"])
def test_an_interface_without_a_tap_is_found(kind: str) -> None:
    one = f'<interface type="{kind}"><mac address="fa:16:3e:00:00:03"/><target dev="macvtap0"/></interface>'
    assert tapless(INTERFACES.format(more=one)) == (kind,)
    assert tapless(INTERFACES.format(more="")) == ()
